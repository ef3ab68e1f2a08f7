#include <gtest/gtest.h>

#include <vector>

#include "lockstep/measure/formulas.h"
#include "lockstep/measure/memory_kernel.h"
#include "lockstep/measure/memory_limit.h"

namespace lockstep::measure {
namespace {

// A limit that moved fewer bytes than the op must would be no limit.
TEST(MemoryTasks, MoveTheBytesThatTheFormulaSays) {
  constexpr std::size_t kBytes = 128 * 60;
  for (int ranks = 2; ranks <= 5; ++ranks) {
    std::vector<std::optional<Op>> ops(all_ops().begin(), all_ops().end());
    ops.emplace_back(std::nullopt);
    for (const auto op : ops) {
      double moved = 0;
      for (const MemoryTask& task : memory_tasks(op, ranks, 1, kBytes, kBytes))
        moved += static_cast<double>(task.bytes * (task.sources.size() + task.targets.size()));
      EXPECT_DOUBLE_EQ(moved, memory_bytes(op, ranks, kBytes)) << (op ? name_of(*op) : "p2p") << ", p = " << ranks;
    }
  }
}

TEST(MemoryKernel, SumsInEveryWay) {
  constexpr std::size_t kFloats = 256;
  for (const Store store : {Store::lines, Store::vectors, Store::non_temporal, Store::string})
    for (std::size_t sources = 1; sources <= 5; ++sources)
      for (std::size_t targets = 1; targets <= 5; ++targets) {
        struct alignas(64) Piece {
          float values[kFloats];
        };
        std::vector<Piece> in(sources);
        std::vector<Piece> out(targets);
        std::vector<const std::byte*> from;
        std::vector<std::byte*> to;
        for (std::size_t s = 0; s < sources; ++s) {
          for (std::size_t i = 0; i < kFloats; ++i) in[s].values[i] = static_cast<float>(i * (s + 1));
          from.push_back(reinterpret_cast<const std::byte*>(in[s].values));
        }
        for (Piece& piece : out) to.push_back(reinterpret_cast<std::byte*>(piece.values));
        sum_to_all(from, to, sizeof(Piece), store);
        for (const Piece& piece : out)
          for (std::size_t i = 0; i < kFloats; ++i)
            ASSERT_EQ(piece.values[i], static_cast<float>(i * sources * (sources + 1) / 2))
                << sources << " " << targets;
      }
}

}  // namespace
}  // namespace lockstep::measure
