// Data parallelism by hand: two copies of a model with half of the batch each, and the mean of their gradients.
//   manual_data_parallel
#include <torch/nn/functional/loss.h>
#include <torch/optim/adam.h>

#include <cstdio>
#include <memory>

#include "lockstep/data.h"
#include "lockstep/manual.h"
#include "lockstep/model.h"

int main() {
  torch::manual_seed(42);
  lockstep::model::FullMLP first(128, 16);
  const auto batch = lockstep::data::classification(32, 128);
  const auto second = std::dynamic_pointer_cast<torch::nn::SequentialImpl>(first->clone());
  torch::optim::Adam first_optimizer(first->parameters(), torch::optim::AdamOptions(1e-3));
  torch::optim::Adam second_optimizer(second->parameters(), torch::optim::AdamOptions(1e-3));

  // region step
  const auto loss_of = [&](torch::nn::SequentialImpl& model, std::int64_t begin, std::int64_t end) {
    return torch::nn::functional::cross_entropy(model.forward(batch.inputs.slice(0, begin, end)),
                                                batch.targets.slice(0, begin, end));
  };
  for (int step = 0; step < 50; ++step) {
    const auto loss =
        lockstep::manual_data_parallel_step({*first, first_optimizer, [&] { return loss_of(*first, 0, 16); }},
                                            {*second, second_optimizer, [&] { return loss_of(*second, 16, 32); }});
    if (step % 10 == 9) std::printf("step %2d  loss %.6f\n", step + 1, loss.item<double>());
  }
  // endregion
}
