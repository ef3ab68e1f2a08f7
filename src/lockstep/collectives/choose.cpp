#include "lockstep/collectives/choose.h"

#include <bit>

namespace lockstep::collectives {
namespace {

constexpr std::size_t K = 1024;

struct Row {
  Op op;
  int ranks;          // largest number of ranks, or kPowerOfTwo
  std::size_t bytes;  // largest size of the buffer
  Algorithm algorithm;
};
constexpr int kAny = 1 << 30;
constexpr int kPowerOfTwo = -1;
constexpr std::size_t kAll = ~std::size_t{0};

// The first row that fits is used. Each threshold is the size at which two algorithms took the same time over tcp on
// loopback, on 2 cores; times are p50 of `lockstep bench OP --transport tcp --algorithm all`. Where ranks have links of
// their own, a ring pays off at smaller sizes. No such links were available to measure, so the rows for 8 ranks and
// more follow the formulas of docs/allreduce.md.
constexpr Row kTable[] = {
    // 2 ranks: exchange takes 3.9 us at 8 B (others 7.5 and more) and 12 us at 32 KB (ring 17); at 64 KB both take the
    // same.
    {Op::all_reduce, 2, 32 * K, Algorithm::exchange},
    {Op::all_reduce, 2, kAll, Algorithm::ring},
    // 4 ranks: tree takes 94 us at 8 B and 105 us at 4 KB (halving-doubling 109 and 108, ring 249 and 263).
    {Op::all_reduce, kAny, 16 * K, Algorithm::tree},
    // 4 ranks, 64 KB: halving-doubling takes 130 us, tree 173, ring 325. 3 ranks, 256 KB: halving-doubling 338 us, tree
    // 324, ring 329.
    {Op::all_reduce, kAny, 256 * K, Algorithm::halving_doubling},
    // 4 ranks, 16 MB: halving-doubling takes 30 ms, ring 33. 3 ranks, 16 MB: ring takes 20 ms, halving-doubling 23.
    {Op::all_reduce, kPowerOfTwo, kAll, Algorithm::halving_doubling},
    {Op::all_reduce, kAny, kAll, Algorithm::ring},
    // 4 ranks: tree takes 4.6 us at 64 B (naive 17, ring 107); at 1 MB naive takes 805 us, tree 882, ring 1030.
    {Op::broadcast, 7, kAll, Algorithm::tree},
    {Op::broadcast, kAny, 1024 * K, Algorithm::tree},
    {Op::broadcast, kAny, kAll, Algorithm::ring},
    // 4 ranks: tree takes 864 us at 1 MB, ring 1307, naive 1555; below 64 KB tree and naive take the same.
    {Op::reduce, 7, kAll, Algorithm::tree},
    {Op::reduce, kAny, 1024 * K, Algorithm::tree},
    {Op::reduce, kAny, kAll, Algorithm::ring},
    // From the formulas: with a tree the root sends or receives fewer messages, but most chunks are sent more than
    // once.
    {Op::scatter, kAny, 4 * K, Algorithm::tree},
    {Op::scatter, kAny, kAll, Algorithm::naive},
    {Op::gather, kAny, 4 * K, Algorithm::tree},
    {Op::gather, kAny, kAll, Algorithm::naive},
    // 4 ranks: halving-doubling takes 100 us at 64 KB (ring 166); ring takes 839 us at 1 MB (halving-doubling 990).
    {Op::all_gather, kAny, 256 * K, Algorithm::halving_doubling},
    {Op::all_gather, kAny, kAll, Algorithm::ring},
    // 4 ranks: naive takes 86 us at 64 B and 157 us at 64 KB (ring 123 and 187); ordered takes 1248 us at 1 MB (ring
    // 1411, naive 1608).
    {Op::reduce_scatter, 4, 64 * K, Algorithm::naive},
    {Op::reduce_scatter, kAny, 16 * K, Algorithm::tree},
    {Op::reduce_scatter, kAny, kAll, Algorithm::ordered},
    {Op::all_to_all, kAny, kAll, Algorithm::exchange},
    {Op::barrier, kAny, kAll, Algorithm::halving_doubling},
};

bool fits(const Row& row, Op op, std::size_t bytes, int ranks) {
  const bool ranks_fit =
      row.ranks == kPowerOfTwo ? std::has_single_bit(static_cast<unsigned>(ranks)) : ranks <= row.ranks;
  return row.op == op && ranks_fit && bytes <= row.bytes;
}

}  // namespace

Algorithm choose_messages(Op op, std::size_t bytes, int ranks) {
  for (const Row& row : kTable)
    if (fits(row, op, bytes, ranks)) return row.algorithm;
  return Algorithm::naive;
}

Algorithm choose(Op op, std::size_t bytes, int ranks, bool shared) {
  return shared ? Algorithm::direct : choose_messages(op, bytes, ranks);
}

}  // namespace lockstep::collectives
