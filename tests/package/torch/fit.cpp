// A module of one's own that learns y = 3x - 1, each rank from its half of the rows.
#include <lockstep/data.h>
#include <lockstep/data_parallel.h>
#include <lockstep/optimizer.h>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>

#include <cstdio>
#include <memory>

struct Line : torch::nn::Module {
  Line() { linear = register_module("linear", torch::nn::Linear(1, 1)); }
  torch::Tensor forward(const torch::Tensor& x) { return linear->forward(x); }
  torch::nn::Linear linear{nullptr};
};

void fit(lockstep::Communicator& comm) {
  const torch::Tensor x = torch::linspace(-1, 1, 64).unsqueeze(1);
  const lockstep::data::Batch whole{.inputs = x, .targets = 3 * x - 1};
  const lockstep::data::Batch mine = lockstep::data::slice(whole, comm.rank(), comm.size());

  torch::manual_seed(comm.rank());  // different weights, until DistributedDataParallel makes them rank 0's
  auto line = std::make_shared<Line>();
  lockstep::DistributedDataParallel ddp(line, comm);
  lockstep::SGD optimizer(ddp.parameters(), 0.3);
  for (int step = 0; step < 200; ++step) {
    optimizer.zero_grad();
    (ddp.forward(mine.inputs) - mine.targets).square().mean().backward();
    optimizer.step();
  }
  std::printf("y = %.3f x + %.3f\n", line->linear->weight.item<float>(), line->linear->bias.item<float>());
}

int main() { return lockstep::rank_main(fit); }
