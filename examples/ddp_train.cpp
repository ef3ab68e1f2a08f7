// A model of your own on any number of ranks. Copy this example to start.
//   lockstep run -n 4 -- ddp_train
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adam.h>

#include <cstdio>

#include "lockstep/data_parallel.h"
#include "lockstep/tensor.h"

// Any torch::nn::Module will do, with any forward.
struct Net : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& x) { return out(torch::relu(in(x))); }
  torch::nn::Linear in = register_module("in", torch::nn::Linear(20, 64));
  torch::nn::Linear out = register_module("out", torch::nn::Linear(64, 2));
};

int main() {
  return lockstep::rank_main([](lockstep::Communicator& comm) {
    torch::set_num_threads(1);
    torch::manual_seed(comm.rank());  // ranks may draw different weights: rank 0's are used
    // region ddp
    auto model = std::make_shared<Net>();
    lockstep::DistributedDataParallel ddp(model, comm);
    torch::optim::Adam optimizer(ddp.parameters(), torch::optim::AdamOptions(1e-2));

    const auto x = torch::randn({64, 20});  // this rank's data
    const auto y = (x.select(1, 0) > 0).to(torch::kLong);
    for (int step = 0; step < 100; ++step) {
      optimizer.zero_grad();
      const auto loss = torch::nn::functional::cross_entropy(ddp.forward(x), y);
      loss.backward();  // when it returns, gradients are the mean over all ranks
      optimizer.step();
    }
    // endregion

    const torch::NoGradGuard no_grad;
    auto right = (model->forward(x).argmax(1) == y).to(torch::kFloat).mean();
    lockstep::all_reduce_mean(comm, right);
    if (comm.rank() == 0) std::printf("%.1f%% right on %d ranks\n", 100 * right.item<double>(), comm.size());
  });
}
