#include "lockstep/parallel/pipeline/run/emulated.h"

#include <fmt/format.h>
#include <limits>
#include <thread>

#include "lockstep/base/clock.h"
#include "lockstep/error.h"

namespace lockstep::pipeline {
namespace {

// Sleeps until `seconds` after its construction, so that the stage's own work is part of that time.
class Pause {
 public:
  explicit Pause(double seconds)
      : until_(Clock::now() + std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds))) {}
  ~Pause() { std::this_thread::sleep_until(until_); }
  Pause(const Pause&) = delete;

 private:
  Clock::time_point until_;
};

}  // namespace

EmulatedStage::EmulatedStage(const torch::nn::Sequential& modules, const Times& seconds, bool first)
    : modules_(*modules, {.first = first}), seconds_(seconds), first_(first) {}

Activation EmulatedStage::forward(int microbatch, const Activation& input, Backward, const Tail& tail) {
  const Pause pause(seconds_.of(Kind::F));
  if (!kept_.emplace(microbatch, Shapes::of(input)).second)
    throw UsageError(fmt::format("forward of microbatch {} twice without a backward", microbatch),
                     "a schedule that verify() accepts");
  if (tail) return torch::full({}, std::numeric_limits<float>::quiet_NaN());
  return output_for(input);
}

Activation EmulatedStage::backward(int microbatch, const Activation&) {
  const Pause pause(seconds_.of(Kind::B));
  Activation gradient = gradient_of_input(microbatch);
  kept_.erase(microbatch);
  return gradient;
}

Activation EmulatedStage::input_gradient(int microbatch, const Activation&) {
  const Pause pause(seconds_.of(Kind::I));
  return gradient_of_input(microbatch);
}

void EmulatedStage::weight_gradient(int microbatch) {
  const Pause pause(seconds_.of(Kind::W));
  kept_.erase(microbatch);
}

Activation EmulatedStage::output_for(const Activation& input) {
  const Shapes shapes = Shapes::of(input);
  for (const auto& [known, output] : outputs_)
    if (known == shapes) return output;
  const auto zeros = [](const torch::Tensor& tensor) { return torch::zeros_like(tensor); };
  outputs_.emplace_back(shapes, modules_.infer(input).map(zeros));
  return outputs_.back().second;
}

Activation EmulatedStage::gradient_of_input(int microbatch) const {
  const auto found = kept_.find(microbatch);
  if (found == kept_.end())
    throw UsageError(fmt::format("backward of microbatch {}, which had no forward", microbatch),
                     "a schedule that verify() accepts");
  if (first_) return {};
  std::vector<torch::Tensor> gradients;
  for (const Shape& shape : found->second.tensors)
    gradients.push_back(torch::zeros(shape.sizes, at::TensorOptions(shape.dtype)));
  return {found->second.form, std::move(gradients)};
}

}  // namespace lockstep::pipeline
