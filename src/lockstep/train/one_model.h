// The training step of all strategies that have one model per rank. `single` is just this; the other strategies
// override what differs.
#pragma once

#include "lockstep/base/clock.h"
#include "lockstep/train/strategy.h"

namespace lockstep::train {

class OneModel : public Strategy {
 public:
  // `averaged_over` is the number of ranks whose gradients are averaged.
  OneModel(const Setup& setup, int averaged_over);

  StepResult step(std::span<const data::Batch> microbatches) final;
  torch::nn::SequentialImpl& model() override { return *setup_.model; }

 protected:
  // Must be called once, at the end of construction, because the optimizer's tensors may be known only then.
  void optimize(std::vector<torch::Tensor> parameters);

  virtual torch::Tensor forward(const torch::Tensor& inputs) { return setup_.model->forward(inputs); }
  // `last` is true if the optimizer steps after this backward.
  virtual void backward(const torch::Tensor& loss, bool last);
  // Called after the last backward. Turns the gradients into those of all ranks, and adds the time for that to the
  // right phases.
  virtual void average(Phases&) {}

  Setup setup_;

 private:
  const int averaged_over_;
  std::unique_ptr<torch::optim::Optimizer> optimizer_;
};

}  // namespace lockstep::train
