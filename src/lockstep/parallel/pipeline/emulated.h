// A stage that sleeps instead of computing. Everything else is real: processes, messages of the real sizes, schedules.
// So, as far as a schedule can tell, 8 stages behave on 2 cores as they would on 8 devices.
#pragma once

#include <unordered_map>

#include "lockstep/parallel/pipeline/simulate.h"
#include "lockstep/parallel/pipeline/stage.h"

namespace lockstep::pipeline {

// Each action takes the time in `seconds`; B takes as long as I and W together. Outputs and gradients have the shapes
// that `modules` would give, and are filled with zeros. The modules run only when an input has a new shape, to learn
// the shape of the output. The loss is NaN, and the weights get no gradients.
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
  std::vector<std::pair<std::vector<std::int64_t>, std::vector<std::int64_t>>> shapes_;  // input, output
  std::unordered_map<int, torch::Tensor> kept_;                                          // input of each microbatch
};

}  // namespace lockstep::pipeline
