#include "lockstep/gradients.h"

#include "lockstep/tensor.h"

namespace lockstep {

// region average
void average_gradients(const std::vector<torch::Tensor>& parameters, Communicator& comm) {
  const torch::NoGradGuard no_grad;
  for (torch::Tensor parameter : parameters) {
    if (!parameter.requires_grad()) continue;
    if (!parameter.grad().defined()) parameter.mutable_grad() = torch::zeros_like(parameter);
    all_reduce_mean(comm, parameter.grad());
  }
}
// endregion

// region step
torch::Tensor naive_data_parallel_step(const std::vector<torch::Tensor>& parameters, torch::optim::Optimizer& optimizer,
                                       Communicator& comm, const Loss& loss) {
  optimizer.zero_grad();
  torch::Tensor value = loss();
  value.backward();
  average_gradients(parameters, comm);
  optimizer.step();
  return value.detach();
}
// endregion

}  // namespace lockstep
