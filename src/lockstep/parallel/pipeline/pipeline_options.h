// The options of a Pipeline.
#pragma once

#include <torch/types.h>

#include <optional>
#include <string>
#include <vector>

#include "lockstep/parallel/data/options.h"
#include "lockstep/parallel/pipeline/partition.h"
#include "lockstep/parallel/pipeline/simulate.h"

namespace lockstep {

struct PipelineOptions {
  // The name of a schedule (`lockstep schedule` lists them), or the path of a CSV file, which ends in .csv.
  std::string schedule = "1f1b";
  // The number of parts into which each pipeline divides its rows of the batch. A file says it itself.
  int microbatches = 8;
  // The number of ranks in one pipeline; 0 means all ranks. With fewer, several pipelines run beside each other and
  // share the batch: ranks [r * ranks, (r + 1) * ranks) are pipeline r.
  int ranks = 0;
  // The number of stages on each rank, for schedules that allow several.
  std::optional<int> virtual_stages = {};

  // What is made equal among stages: the number of layers, the number of parameters, or the time.
  pipeline::Balance balance = pipeline::Balance::count;
  // For Balance::time: inputs of one microbatch, with which rank 0 measures each module. Other ranks may leave it out.
  torch::Tensor sample = {};
  // For Balance::time, instead of `sample`: the seconds of each module, the same on all ranks.
  std::vector<double> module_seconds = {};

  // Keep only the input of each stage, and run forward again before backward. It saves memory and costs time.
  bool recompute = false;
  // How pipelines that run beside each other average their gradients. `sharded` is not possible here.
  DdpOptions ddp = {};
  // To study schedules: ranks sleep for these times instead of computing. The loss is then not a number.
  std::optional<pipeline::Times> emulate = {};
  // The pipeline's name in error messages.
  std::string name = "pipeline";
};

}  // namespace lockstep
