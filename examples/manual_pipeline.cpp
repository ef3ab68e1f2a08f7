// A pipeline by hand: a network in two parts, and for comparison the whole network, which must give the same losses.
//   manual_pipeline
#include <torch/nn/functional/loss.h>
#include <torch/optim/adam.h>

#include <cstdio>
#include <memory>

#include "lockstep/data.h"
#include "lockstep/manual.h"
#include "lockstep/model.h"

using namespace lockstep::pipeline;

int main() {
  torch::manual_seed(42);
  lockstep::model::FullMLP whole(128, 16);
  const auto batch = lockstep::data::classification(32, 128);
  const auto loss_of = [&](const torch::Tensor& output) {
    return torch::nn::functional::cross_entropy(output, batch.targets);
  };

  // region cut
  const auto copy = std::dynamic_pointer_cast<torch::nn::SequentialImpl>(whole->clone());
  auto [first, second] = cut_in_two(*copy);
  // endregion
  const auto options = torch::optim::AdamOptions(1e-3);
  torch::optim::Adam optimizer(whole->parameters(), options);
  torch::optim::Adam first_optimizer(first->parameters(), options);
  torch::optim::Adam second_optimizer(second->parameters(), options);

  // region step
  for (int step = 0; step < 50; ++step) {
    // Forward to the cut and beyond it, backward to the cut and beyond it: manual.cpp has every line of it.
    const auto loss =
        manual_pipeline_step({*first, first_optimizer}, {*second, second_optimizer}, batch.inputs, loss_of);

    optimizer.zero_grad();
    const auto loss_of_whole = loss_of(whole->forward(batch.inputs));
    loss_of_whole.backward();
    optimizer.step();

    if (step % 10 == 9)
      std::printf("step %2d  loss %.6f  whole %.6f\n", step + 1, loss.item<double>(), loss_of_whole.item<double>());
  }
  // endregion
}
