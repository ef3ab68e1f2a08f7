// What `lockstep compare hooks` and `lockstep compare buckets` train, as they were asked to. Read by the
// process that starts the ranks, and by the ranks.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace lockstep::cli::comparison {

struct GradientOptions {
  int ranks = 2;
  std::int64_t dim = 512;
  std::int64_t depth = 16;
  std::int64_t batch = 64;
  int steps = 20;
  double device_seconds = 0;  // that a layer's backward waits, as for a device; 0: none
  std::string transport = "auto";
  std::vector<double> buckets = {1, 5, 25, 100};  // MiB
  std::string svg;                                // hooks: a file for the picture
  bool json = false;
  std::string result;  // where rank 0 writes its document
};

// `what`: "hooks" or "buckets". Throws UsageError.
GradientOptions parse_gradient_options(const std::string& what, std::span<const std::string> arguments);

// On a rank, in lockstep-torch.
int compare_gradients_rank(const std::string& what, std::span<const std::string> arguments);

}  // namespace lockstep::cli::comparison
