// The matrix: ranks x sizes x types x reduce ops x algorithms x transports x buffers x sync and async, with exact
// inputs.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <random>
#include <span>
#include <thread>
#include <vector>

#include "cases.h"
#include "lockstep/collectives/plan.h"

namespace lockstep {
namespace {

struct Way {
  const char* transport;
  bool arena;
  bool async;
};

struct Point {
  int ranks;
  Way way;
};

// Under a sanitizer everything takes ten times as long: a prime and a power of two must do.
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr std::array kRanks{2, 5};
constexpr std::size_t kLargest = 20'001;
#else
constexpr std::array kRanks{1, 2, 3, 4, 5, 6, 7, 8, 9};
constexpr std::size_t kLargest = (std::size_t{1} << 20) / 4 + 1;
#endif

std::vector<Point> all_points() {
  std::vector<Point> points;
  for (const int ranks : kRanks)
    for (const bool async : {false, true}) {
      points.push_back({ranks, {"shm", true, async}});
      points.push_back({ranks, {"shm", false, async}});
      points.push_back({ranks, {"tcp", false, async}});
    }
  return points;
}

class Matrix : public ::testing::TestWithParam<Point> {};

// Every op with every algorithm that it has.
std::vector<Algorithm> algorithms(Op op, const std::string& transport) {
  std::vector<Algorithm> found = collectives::algorithms_of(op);
  found.push_back(Algorithm::automatic);
  if (transport == "shm") found.push_back(Algorithm::direct);
  return found;
}

TEST_P(Matrix, EverythingIsRight) {
  const auto [p, way] = GetParam();
  const auto n = static_cast<std::size_t>(p);
  transport::Options options;
  options.kind = parse_transport(way.transport);
  options.timeout = std::chrono::seconds(60);
  comm::Options small;  // small knobs: a small test reaches the big paths
  small.timeout = std::chrono::seconds(60);
  small.small_bytes = 1024;
  small.segment_bytes = 4096;
  std::atomic<std::size_t> cases{0};
  thread_world(
      p,
      [&, way = way](Communicator& comm) {
        const std::size_t most = kLargest;
        cases::Memory a(comm, most * 4 + 64, way.arena);
        cases::Memory b(comm, most * 4 + 64, way.arena);
        std::size_t turn = 0;
        for (const Op op : all_ops())
          for (const Algorithm algorithm : algorithms(op, way.transport))
            for (const DType dtype : all_dtypes())
              for (const ReduceOp reduce : all_reduce_ops()) {
                if (!cases::reduces(op) && reduce != ReduceOp::sum) continue;
                if (reduce == ReduceOp::mean && is_integer(dtype)) continue;
                const bool whole = op == Op::scatter || op == Op::gather || op == Op::all_to_all;
                for (const std::size_t size :
                     {std::size_t{0}, std::size_t{1}, n - 1, n, n + 1, std::size_t{4097}, most}) {
                  // The largest once for each op and algorithm, and 4097 for each reduce op.
                  if (size == most && (dtype != DType::float32 || reduce != ReduceOp::sum)) continue;
                  if (size == 4097 && dtype != DType::float32 && dtype != DType::bfloat16 && reduce != ReduceOp::sum)
                    continue;
                  std::size_t count = size;
                  if (whole && count * n * bytes_per_element(dtype) > most * 4)
                    count = most * 4 / n / bytes_per_element(dtype);
                  const cases::Case c{op, dtype, reduce, count, static_cast<Rank>(turn++ % n), algorithm, way.async};
                  ASSERT_EQ(cases::wrong(comm, c, a.data(), b.data()), 0U)
                      << name_of(op) << " " << name_of(algorithm) << " " << name_of(dtype) << " " << name_of(reduce)
                      << ", " << count << " elements, root " << c.root << ", rank " << comm.rank();
                  ++cases;
                }
              }
      },
      options, small);
  EXPECT_GT(cases, 1000U * n);
}

// Small calls travel beside the post, larger ones through segments, and still larger ones from memory to memory. Two
// that follow each other must not use the same memory, however late a rank is.
TEST(Turns, ACallDoesNotDisturbTheOneBeforeIt) {
  transport::Options options;
  options.kind = TransportKind::shm;
  options.timeout = std::chrono::seconds(60);
  comm::Options small;
  small.timeout = std::chrono::seconds(60);
  small.small_bytes = 1024;
  small.segment_bytes = 4096;
  constexpr int kTurns = 3000;
  for (const int p : {2, 3, 5}) {
    thread_world(
        p,
        [&](Communicator& comm) {
          std::mt19937 calls(7);  // the same on all ranks
          std::mt19937 delays(static_cast<unsigned>(comm.rank()));
          std::vector<std::int32_t> a(2000);
          std::vector<std::int32_t> b(2000);
          for (int turn = 0; turn < kTurns; ++turn) {
            const auto count = static_cast<std::size_t>(calls() % a.size());
            const Rank root = static_cast<Rank>(calls() % static_cast<unsigned>(p));
            const auto value = [&](Rank rank, std::size_t i) {
              return static_cast<std::int32_t>(turn * 64 + rank * 11 + static_cast<int>(i % 7));
            };
            const auto sum = [&](std::size_t i) {
              std::int32_t all = 0;
              for (Rank rank = 0; rank < p; ++rank) all += value(rank, i);
              return all;
            };
            const std::size_t begin = chunk_begin(count, p, comm.rank());
            const std::size_t mine = chunk_size(count, p, comm.rank());
            for (std::size_t i = 0; i < count; ++i) a[i] = value(comm.rank(), i);
            if (delays() % 50 == 0) std::this_thread::sleep_for(std::chrono::microseconds(delays() % 200));
            const std::span whole(a.data(), count);
            const std::span part(b.data(), mine);
            std::size_t wrong = 0;
            switch (calls() % 5) {
              case 0:
                comm.all_reduce(whole);
                for (std::size_t i = 0; i < count; ++i) wrong += a[i] != sum(i);
                break;
              case 1:
                comm.broadcast(whole, root);
                for (std::size_t i = 0; i < count; ++i) wrong += a[i] != value(root, i);
                break;
              case 2:
                comm.reduce_scatter(whole, part);
                for (std::size_t i = 0; i < mine; ++i) wrong += b[i] != sum(begin + i);
                break;
              case 3:
                comm.reduce(whole, ReduceOp::sum, root);
                for (std::size_t i = 0; comm.rank() == root && i < count; ++i) wrong += a[i] != sum(i);
                break;
              default:
                comm.all_gather(whole.first(mine), std::span(b.data(), count));
                for (Rank rank = 0; rank < p; ++rank)
                  for (std::size_t i = 0; i < chunk_size(count, p, rank); ++i)
                    wrong += b[chunk_begin(count, p, rank) + i] != value(rank, i);
            }
            ASSERT_EQ(wrong, 0U) << "turn " << turn << " on rank " << comm.rank();
          }
        },
        options, small);
  }
}

INSTANTIATE_TEST_SUITE_P(, Matrix, ::testing::ValuesIn(all_points()), [](const auto& named) {
  const Point& point = named.param;
  return fmt::format("{}ranks_{}_{}_{}", point.ranks, point.way.transport, point.way.arena ? "arena" : "private",
                     point.way.async ? "async" : "sync");
});

}  // namespace
}  // namespace lockstep
