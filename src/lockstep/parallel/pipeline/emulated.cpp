#include "lockstep/parallel/pipeline/emulated.h"

#include <fmt/format.h>
#include <limits>
#include <thread>

#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"

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

EmulatedStage::EmulatedStage(torch::nn::Sequential modules, const Times& seconds, bool first)
    : modules_(std::move(modules)), seconds_(seconds), first_(first) {}

torch::Tensor EmulatedStage::forward(int microbatch, const torch::Tensor& input, Backward, const Tail& tail) {
  const Pause pause(seconds_.of(Kind::F));
  if (!kept_.emplace(microbatch, input.detach()).second)
    throw UsageError(fmt::format("forward of microbatch {} twice without a backward", microbatch),
                     "a schedule that verify() accepts");
  return tail ? torch::full({}, std::numeric_limits<float>::quiet_NaN()) : output_for(input);
}

torch::Tensor EmulatedStage::backward(int microbatch, const torch::Tensor&) {
  const Pause pause(seconds_.of(Kind::B));
  torch::Tensor gradient = gradient_of_input(microbatch);
  kept_.erase(microbatch);
  return gradient;
}

torch::Tensor EmulatedStage::input_gradient(int microbatch, const torch::Tensor&) {
  const Pause pause(seconds_.of(Kind::I));
  return gradient_of_input(microbatch);
}

void EmulatedStage::weight_gradient(int microbatch) {
  const Pause pause(seconds_.of(Kind::W));
  kept_.erase(microbatch);
}

torch::Tensor EmulatedStage::output_for(const torch::Tensor& input) {
  for (const auto& [of_input, of_output] : shapes_)
    if (input.sizes() == of_input) return torch::zeros(of_output);
  const torch::NoGradGuard no_grad;
  const torch::Tensor output = modules_->forward(input);
  shapes_.emplace_back(input.sizes().vec(), output.sizes().vec());
  return torch::zeros_like(output);
}

torch::Tensor EmulatedStage::gradient_of_input(int microbatch) const {
  const auto found = kept_.find(microbatch);
  if (found == kept_.end())
    throw UsageError(fmt::format("backward of microbatch {}, which had no forward", microbatch),
                     "a schedule that verify() accepts");
  return first_ ? torch::Tensor() : torch::zeros_like(found->second);
}

}  // namespace lockstep::pipeline
