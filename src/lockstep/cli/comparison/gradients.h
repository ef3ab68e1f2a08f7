// The options of `lockstep compare hooks`, `overlap` and `buckets`. The process that starts the ranks reads them, and
// so do the ranks.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "lockstep/kinds.h"
#include "lockstep/options.h"
#include "lockstep/training.h"

namespace lockstep::cli::comparison {

struct GradientOptions {
  int ranks = 2;
  model::ModelConfig model{.dim = 512, .depth = 16};
  std::int64_t batch = 64;
  int steps = 20;
  double layer_wait = 0;  // seconds that each layer's backward waits, as if for a device; 0: none
  TransportKind transport = TransportKind::automatic;
  std::vector<double> buckets = {1, 5, 25, 100};  // MiB
  double bucket_mb = 4;                           // overlap: MiB
  std::string svg;                                // hooks, overlap: a file for the picture
  bool json = false;
  std::string result;  // where rank 0 writes its document
};

// `what` is "hooks", "overlap" or "buckets". Throws UsageError if the options are wrong or do not fit together.
GradientOptions parse_gradient_options(const std::string& what, std::span<const std::string> arguments);

// One way of training the model.
struct NamedConfig {
  std::string name;
  train::TrainingConfig config;
};

// The ways that are compared: `naive` and `hooks`, `naive` and `ddp` with and without overlap, or `ddp` with several
// sizes of buckets. Throws UsageError if a configuration is inconsistent.
std::vector<NamedConfig> contenders(const std::string& what, const GradientOptions& options);

// Runs on a rank, in lockstep-torch. Returns the exit code.
int compare_gradients_rank(const std::string& what, std::span<const std::string> arguments);

}  // namespace lockstep::cli::comparison
