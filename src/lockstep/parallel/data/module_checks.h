// Checks that a module is still the one for which DistributedDataParallel was made.
//
// The Reducer calls it before every forward with gradients enabled.
#pragma once

#include "lockstep/parallel/data/distributed_model.h"
#include "lockstep/parallel/data/parameters.h"

namespace lockstep::parallel {

class ModuleChecks {
 public:
  explicit ModuleChecks(const DistributedModel& model) : model_(model), registered_(model.module) {}

  // Throws UsageError if a parameter was registered later, because that has no hook and no place in a bucket, or if one
  // was removed.
  void check_registered();
  // Throws UsageError if a parameter has another type now, or if a frozen one requires a gradient now.
  void check_types() const;

 private:
  const DistributedModel& model_;
  Registered registered_;
};

}  // namespace lockstep::parallel
