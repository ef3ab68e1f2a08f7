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
enum class BufferKind : std::uint8_t { arena, private_memory };

inline constexpr auto kBuffers =
    named_values<BufferKind>("buffer", {{BufferKind::arena, "arena", "memory that all ranks have mapped"},
                                        {BufferKind::private_memory, "private", "any other memory"}});
inline const char* name_of(BufferKind kind) { return kBuffers.name_of(kind); }

// The settings of a measurement.
struct BenchConfig {
  std::optional<Op> op;  // none means p2p
  std::string name() const { return op ? lockstep::name_of(*op) : "p2p"; }

  std::vector<std::size_t> sizes;      // in bytes
  DType dtype = DType::float32;        // set by run_bench() for each row; callers set `dtypes`
  ReduceOp reduce_op = ReduceOp::sum;  // set by run_bench() for each row; callers set `reduce_ops`
  Rank root = 0;

  // Each combination of these is one row, unless it is impossible (such as direct over tcp).
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
