// What a bench measures: the operation, the sizes, and the ways in which it is done.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/buffer.h"
#include "lockstep/named_values.h"
#include "lockstep/options.h"

namespace lockstep::measure {

// Where the buffers of an operation lie.
enum class BufferKind : std::uint8_t { arena, plain };

inline constexpr auto kBuffers = named_values<BufferKind>(
    "buffer", {{BufferKind::arena, "arena", "memory that all ranks have mapped"}, {BufferKind::plain, "private"}});
inline const char* name_of(BufferKind kind) { return kBuffers.name_of(kind); }

struct BenchConfig {
  std::optional<Op> op;  // none means p2p
  std::string name() const { return op ? lockstep::name_of(*op) : "p2p"; }

  std::vector<std::size_t> sizes;      // in bytes
  DType dtype = DType::float32;        // the type of one row
  ReduceOp reduce_op = ReduceOp::sum;  // the reduction of one row
  Rank root = 0;

  // Every combination of these that exists is a row.
  std::vector<DType> dtypes = {DType::float32};
  std::vector<ReduceOp> reduce_ops = {ReduceOp::sum};
  std::vector<TransportKind> transports = {TransportKind::automatic};
  std::vector<Algorithm> algorithms = {Algorithm::automatic};
  std::vector<BufferKind> buffers;  // empty means arena if the ranks share memory
  bool rotate = false;              // cold buffers, used in turn, instead of one hot one

  int rounds = 5;
  int iterations = 0;  // calls per round; 0 means as many as fill round_seconds
  double round_seconds = 0.03;
  int warmup = 5;
  bool check = true;   // compare the results with what they must be
  bool limits = true;  // measure what the machine allows

  bool reduces() const { return op == Op::all_reduce || op == Op::reduce || op == Op::reduce_scatter; }
  bool has_root() const { return op == Op::reduce || op == Op::broadcast || op == Op::scatter || op == Op::gather; }
};

}  // namespace lockstep::measure
