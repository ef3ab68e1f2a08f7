// The model that a Reducer trains on all ranks, as the parts of the Reducer see it: its options, its communicator, its
// tensors and the memory of their gradients.
//
// The Reducer owns it. All parts of the Reducer hold references to it, so it outlives them and is never moved. It knows
// nothing about the backward in progress: that is the state of the parts.
#pragma once

#include <torch/nn/module.h>

#include <string>

#include "lockstep/communicator.h"
#include "lockstep/data_parallel.h"
#include "lockstep/parallel/data/gradients.h"
#include "lockstep/parallel/data/layout.h"
#include "lockstep/parallel/data/parameters.h"

namespace lockstep::parallel {

struct DistributedModel {
  // Collective. Throws UsageError if the options contradict each other or if a parameter cannot be averaged, and
  // Mismatch if the ranks have different models.
  DistributedModel(torch::nn::Module& wrapped, Communicator& ranks, DdpOptions wanted);
  DistributedModel(const DistributedModel&) = delete;

  LayoutOptions layout_options() const;
  // Tells the other ranks that this one failed, and why, and throws the same as an Error.
  [[noreturn]] void fail(const std::string& what, const std::string& hint);

  const DdpOptions options;  // checked; `flat` is also true if `sharded` is
  const std::string name;    // for error messages
  Communicator comm;         // its own, so that nobody else's collectives come between
  torch::nn::Module& module;
  const ModelTensors tensors;  // as they were at construction
  const bool overlaps;         // full buckets are reduced on the communication thread
  Gradients gradients;         // of tensors.trained
  const bool fuses;            // the optimizer averages the gradients (DdpOptions::fused_update)
};

}  // namespace lockstep::parallel
