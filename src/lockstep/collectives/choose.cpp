#include "lockstep/collectives/choose.h"

namespace lockstep::collectives {
namespace {

constexpr std::size_t K = 1024;

struct Row {
  Op op;
  int ranks;          // up to so many
  std::size_t bytes;  // up to so many
  Algorithm algorithm;
};
constexpr int kAny = 1 << 30;
constexpr std::size_t kAll = ~std::size_t{0};

// The first row that fits. Measured over tcp on loopback.
constexpr Row kTable[] = {
    {Op::all_reduce, 2, 32 * K, Algorithm::exchange},
    {Op::all_reduce, 2, kAll, Algorithm::ring},
    {Op::all_reduce, kAny, 64 * K, Algorithm::halving_doubling},
    {Op::all_reduce, kAny, kAll, Algorithm::ring},
    {Op::reduce, kAny, 64 * K, Algorithm::tree},
    {Op::reduce, 2, kAll, Algorithm::naive},
    {Op::reduce, kAny, kAll, Algorithm::ring},
    {Op::broadcast, kAny, 64 * K, Algorithm::tree},
    {Op::broadcast, 2, kAll, Algorithm::naive},
    {Op::broadcast, kAny, kAll, Algorithm::ring},
    {Op::scatter, kAny, 4 * K, Algorithm::tree},
    {Op::scatter, kAny, kAll, Algorithm::naive},
    {Op::gather, kAny, 4 * K, Algorithm::tree},
    {Op::gather, kAny, kAll, Algorithm::naive},
    {Op::all_gather, kAny, 64 * K, Algorithm::halving_doubling},
    {Op::all_gather, kAny, kAll, Algorithm::ring},
    {Op::reduce_scatter, kAny, 4 * K, Algorithm::tree},
    {Op::reduce_scatter, kAny, kAll, Algorithm::ring},
    {Op::all_to_all, kAny, kAll, Algorithm::exchange},
    {Op::barrier, kAny, kAll, Algorithm::halving_doubling},
};

}  // namespace

Algorithm choose_messages(Op op, std::size_t bytes, int ranks) {
  for (const Row& row : kTable)
    if (row.op == op && ranks <= row.ranks && bytes <= row.bytes) return row.algorithm;
  return Algorithm::naive;
}

Algorithm choose(Op op, std::size_t bytes, int ranks, bool shared) {
  return shared ? Algorithm::direct : choose_messages(op, bytes, ranks);
}

}  // namespace lockstep::collectives
