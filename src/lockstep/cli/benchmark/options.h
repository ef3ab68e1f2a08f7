// What `lockstep bench` was asked to measure.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/collectives/types.h"

namespace lockstep::cli::benchmark {

struct Options {
  std::optional<Op> op;  // none: p2p
  std::string name() const { return op ? name_of(*op) : "p2p"; }

  std::optional<int> ranks;            // none: 2, or the world that we are already part of
  std::vector<std::size_t> sizes;      // in bytes
  DType dtype = DType::float32;        // of one row
  ReduceOp reduce_op = ReduceOp::sum;  // of one row
  Rank root = 0;

  // Every combination of these is a row, as far as it exists.
  std::vector<DType> dtypes = {DType::float32};
  std::vector<ReduceOp> reduce_ops = {ReduceOp::sum};
  std::vector<std::string> transports = {"auto"};
  std::vector<Algorithm> algorithms = {Algorithm::automatic};
  std::vector<std::string> buffers;  // "arena", "private"; empty: arena where ranks share memory
  bool rotate = false;

  int rounds = 5;
  int iterations = 0;  // of a round; 0: as many as fill round_seconds
  double round_seconds = 0.03;
  int warmup = 5;
  bool check = true;
  bool limits = true;

  double min_bandwidth = 0;  // GB/s
  bool json = false;
  std::string result;  // where rank 0 puts the document, when somebody else shows it
  int rows_fd = -1;    // where rank 0 writes the lines of the table as they are measured; -1: nowhere

  bool reduces() const { return op == Op::all_reduce || op == Op::reduce || op == Op::reduce_scatter; }
  bool has_root() const { return op == Op::reduce || op == Op::broadcast || op == Op::scatter || op == Op::gather; }
};

// Throws UsageError if the options make no sense in a world of `ranks`.
void check_world(const Options& options, int ranks);

// `arguments` are those after "bench". Throws UsageError.
Options parse(std::span<const std::string> arguments);
std::string help();

}  // namespace lockstep::cli::benchmark
