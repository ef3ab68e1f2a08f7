// The options of `lockstep bench`.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/buffer.h"
#include "lockstep/options.h"

namespace lockstep::cli::benchmark {

struct Options {
  std::optional<Op> op;  // none means p2p
  std::string name() const { return op ? name_of(*op) : "p2p"; }

  std::optional<int> ranks;            // none means 2, or the world that this process is already part of
  std::vector<std::size_t> sizes;      // in bytes
  DType dtype = DType::float32;        // the type of one row
  ReduceOp reduce_op = ReduceOp::sum;  // the reduction of one row
  Rank root = 0;

  // Every combination of these that exists is a row.
  std::vector<DType> dtypes = {DType::float32};
  std::vector<ReduceOp> reduce_ops = {ReduceOp::sum};
  std::vector<TransportKind> transports = {TransportKind::automatic};
  std::vector<Algorithm> algorithms = {Algorithm::automatic};
  std::vector<std::string> buffers;  // "arena", "private"; empty means arena if the ranks share memory
  bool rotate = false;

  int rounds = 5;
  int iterations = 0;  // calls per round; 0 means as many as fill round_seconds
  double round_seconds = 0.03;
  int warmup = 5;
  bool check = true;
  bool limits = true;

  double min_bandwidth = 0;  // GB/s
  bool json = false;
  std::string result;  // file for rank 0's document, if another process shows it
  int rows_fd = -1;    // descriptor for the table's lines, which rank 0 writes as they are measured; -1: none

  bool reduces() const { return op == Op::all_reduce || op == Op::reduce || op == Op::reduce_scatter; }
  bool has_root() const { return op == Op::reduce || op == Op::broadcast || op == Op::scatter || op == Op::gather; }
};

// Throws UsageError if the options make no sense in a world of `ranks`.
void check_world(const Options& options, int ranks);

// `arguments` are those after "bench". Throws UsageError if they are wrong or do not fit together.
Options parse(std::span<const std::string> arguments);
std::string help();

}  // namespace lockstep::cli::benchmark
