// One process, one loop: the reference for all other ways of training.
//   baseline
#include <torch/nn/functional/loss.h>
#include <torch/optim/adam.h>

#include <cstdio>

#include "lockstep/data.h"
#include "lockstep/model.h"

int main() {
  torch::manual_seed(42);
  lockstep::model::FullMLP model(128, 16);
  const auto batch = lockstep::data::classification(32, 128);
  torch::optim::Adam optimizer(model->parameters(), torch::optim::AdamOptions(1e-3));

  // region loop
  for (int step = 0; step < 50; ++step) {
    optimizer.zero_grad();
    const auto loss = torch::nn::functional::cross_entropy(model->forward(batch.inputs), batch.targets);
    loss.backward();
    optimizer.step();
    if (step % 10 == 9) std::printf("step %2d  loss %.6f\n", step + 1, loss.item<double>());
  }
  // endregion
}
