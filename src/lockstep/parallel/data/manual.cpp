#include "lockstep/manual.h"

#include "lockstep/base/clock.h"
#include "lockstep/error.h"

namespace lockstep {

// region step
torch::Tensor manual_data_parallel_step(const Copy& a, const Copy& b, ManualTimes* times) {
  ManualTimes spent;
  Stopwatch lap;
  a.optimizer.zero_grad();
  b.optimizer.zero_grad();
  spent.optimizer = lap();
  const torch::Tensor loss_a = a.loss();
  const torch::Tensor loss_b = b.loss();
  spent.forward = lap();
  loss_a.backward();
  loss_b.backward();
  spent.backward = lap();
  {
    const torch::NoGradGuard no_grad;
    const auto of_a = a.model.parameters();
    const auto of_b = b.model.parameters();
    if (of_a.size() != of_b.size()) throw UsageError("the two copies have different numbers of parameters");
    for (std::size_t i = 0; i < of_a.size(); ++i) {
      const torch::Tensor gradient_a = of_a[i].grad();
      const torch::Tensor gradient_b = of_b[i].grad();
      if (!gradient_a.defined() || !gradient_b.defined()) continue;  // frozen
      gradient_a.add_(gradient_b).div_(2);
      gradient_b.copy_(gradient_a);
    }
  }
  spent.averaging = lap();
  a.optimizer.step();
  b.optimizer.step();
  spent.optimizer += lap();
  if (times) *times = spent;
  return (loss_a.detach() + loss_b.detach()) / 2;
}
// endregion

}  // namespace lockstep
