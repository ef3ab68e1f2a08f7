// The step that all strategies with one model a rank share; `single` is just this. The others say what differs.
#pragma once

#include "lockstep/base/clock.h"
#include "lockstep/train/strategy.h"

namespace lockstep::train {

class OneModel : public Strategy {
 public:
  // `averaged_over`: the ranks whose gradients are averaged.
  OneModel(const Setup& setup, int averaged_over);

  StepResult step(std::span<const data::Batch> microbatches) final;
  torch::nn::SequentialImpl& model() override { return *setup_.model; }

 protected:
  // Must be called once, at the end of construction: what the optimizer works on may only be known then.
  void optimize(std::vector<torch::Tensor> parameters);

  virtual torch::Tensor forward(const torch::Tensor& inputs) { return setup_.model->forward(inputs); }
  // `last`: after this one the optimizer steps.
  virtual void backward(const torch::Tensor& loss, bool last);
  // After the last backward: gradients become those of all ranks, and the time of that is put where it belongs.
  virtual void average(Phases&) {}

  Setup setup_;

 private:
  const int averaged_over_;
  std::unique_ptr<torch::optim::Optimizer> optimizer_;
};

}  // namespace lockstep::train
