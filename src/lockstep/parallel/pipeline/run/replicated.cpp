#include "lockstep/parallel/pipeline/run/replicated.h"

namespace lockstep::pipeline {
namespace {

DdpOptions deferred(DdpOptions options) {
  options.deferred = true;
  return options;
}

}  // namespace

ReplicatedStage::ReplicatedStage(torch::nn::Sequential modules, const StageOptions& options, int microbatches,
                                 Communicator& replicas, const DdpOptions& ddp)
    : modules_(std::move(modules)),
      stage_(*modules_, options),
      reducer_(*modules_, replicas, deferred(ddp)),
      microbatches_(microbatches) {}

Activation ReplicatedStage::forward(int microbatch, const Activation& input, Backward backward, const Tail& tail) {
  if (forwards_++ == 0) {  // once per step; makes BatchNorm's statistics equal
    reducer_.begin_forward();
    reducer_.end_forward(Clock::now());
  }
  return stage_.forward(microbatch, input, backward, tail);
}

// region last
template <typename Pass>
auto ReplicatedStage::reducing_the_last(Pass pass) {
  if (++backwards_ == microbatches_) return pass();
  const auto own_gradients_only = reducer_.no_sync();
  return pass();
}

Activation ReplicatedStage::backward(int microbatch, const Activation& gradient) {
  return reducing_the_last([&] { return stage_.backward(microbatch, gradient); });
}

Activation ReplicatedStage::input_gradient(int microbatch, const Activation& gradient) {
  return stage_.input_gradient(microbatch, gradient);
}

void ReplicatedStage::weight_gradient(int microbatch) {
  reducing_the_last([&] { stage_.weight_gradient(microbatch); });
}

void ReplicatedStage::finish() {
  reducer_.finish();
  forwards_ = backwards_ = 0;
}
// endregion

void ReplicatedStage::clear() {
  stage_.clear();
  forwards_ = backwards_ = 0;
}

}  // namespace lockstep::pipeline
