// A stage that waits instead of computing. Everything else is real: processes, messages of the real sizes, schedules.
// So 8 stages behave on 2 cores as they would on 8 devices, as far as a schedule can tell.
#pragma once

#include <unordered_map>

#include "lockstep/parallel/pipeline/simulate.h"
#include "lockstep/parallel/pipeline/stage.h"

namespace lockstep::pipeline {

// Takes `seconds` for each action, B as long as I and W. What it gives has the shapes that `modules` give, and zeros in
// it; the modules run only when a shape comes for the first time, to learn that. The loss is not a number, and there
// are no gradients of weights.
class EmulatedStage final : public Stage {
 public:
  EmulatedStage(torch::nn::Sequential modules, const Times& seconds, bool first);

  torch::Tensor forward(int microbatch, const torch::Tensor& input, Backward backward, const Tail& tail) override;
  torch::Tensor backward(int microbatch, const torch::Tensor& gradient) override;
  torch::Tensor input_gradient(int microbatch, const torch::Tensor& gradient) override;
  void weight_gradient(int microbatch) override;
  torch::Tensor infer(const torch::Tensor& input) override { return output_for(input); }
  int live() const override { return static_cast<int>(kept_.size()); }
  void clear() override { kept_.clear(); }

 private:
  torch::Tensor output_for(const torch::Tensor& input);
  torch::Tensor gradient_of_input(int microbatch) const;

  torch::nn::Sequential modules_;
  const Times seconds_;
  const bool first_;
  std::vector<std::pair<std::vector<std::int64_t>, std::vector<std::int64_t>>> shapes_;  // of input, of output
  std::unordered_map<int, torch::Tensor> kept_;                                          // inputs
};

}  // namespace lockstep::pipeline
