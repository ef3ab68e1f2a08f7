// Makes the options of DistributedDataParallel from the settings of a training run.
#pragma once

#include <algorithm>

#include "lockstep/data_parallel.h"
#include "lockstep/training.h"

namespace lockstep::train {

inline DdpOptions ddp_options(const TrainingConfig& config) {
  DdpOptions options;
  options.flat = config.flat;
  options.fused_update = config.fused_update;
  options.overlap = config.overlap;
  // A layer that waits as if for a device leaves its core to communication.
  if (config.overlap == Overlap::automatic && config.layer_wait > 0) options.overlap = Overlap::on;
  options.sharded = config.strategy == StrategyKind::sharded;
  if (config.bucket_mb) {
    options.bucket_bytes = std::max<std::size_t>(1, static_cast<std::size_t>(*config.bucket_mb * (1 << 20)));
    options.first_bucket_bytes = std::min(options.first_bucket_bytes, options.bucket_bytes);
  }
  return options;
}

}  // namespace lockstep::train
