// A stage that sleeps instead of computing. Everything else is real: processes, messages of the real sizes, schedules.
// So, as far as a schedule can tell, 8 stages behave on 2 cores as they would on 8 devices.
#pragma once

#include <unordered_map>

#include "lockstep/parallel/pipeline/run/shapes.h"
#include "lockstep/parallel/pipeline/run/stage.h"
#include "lockstep/parallel/pipeline/schedule/simulate.h"

namespace lockstep::pipeline {

// Each action takes the time in `seconds`; B takes as long as I and W together. Outputs and gradients have the shapes
// that `modules` would give, and are filled with zeros. The modules run only when an input has a new shape, to learn
// the shape of the output. The loss is NaN, and the weights get no gradients.
class EmulatedStage final : public Stage {
 public:
  EmulatedStage(const torch::nn::Sequential& modules, const Times& seconds, bool first);

  Activation forward(int microbatch, const Activation& input, Backward backward, const Tail& tail) override;
  Activation backward(int microbatch, const Activation& gradient) override;
  Activation input_gradient(int microbatch, const Activation& gradient) override;
  void weight_gradient(int microbatch) override;
  Activation infer(const Activation& input) override { return output_for(input); }
  int live() const override { return static_cast<int>(kept_.size()); }
  void clear() override { kept_.clear(); }

 private:
  Activation output_for(const Activation& input);
  Activation gradient_of_input(int microbatch) const;

  SequentialStage modules_;  // runs only to learn the shape of an output
  const Times seconds_;
  const bool first_;
  std::vector<std::pair<Shapes, Activation>> outputs_;  // the output for each shape of an input that was seen
  std::unordered_map<int, Shapes> kept_;                // shapes of the input of each microbatch
};

}  // namespace lockstep::pipeline
