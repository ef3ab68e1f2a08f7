// Naive data parallelism: every rank has its share of the batch, and there is one all-reduce per parameter.
//   lockstep run -n 4 -- naive_data_parallel
#include <torch/nn/functional/loss.h>
#include <torch/optim/adam.h>

#include <cstdio>

#include "lockstep/data.h"
#include "lockstep/gradients.h"
#include "lockstep/model.h"
#include "lockstep/tensor.h"

int main() {
  return lockstep::rank_main([](lockstep::Communicator& comm) {
    torch::set_num_threads(1);
    torch::manual_seed(42);  // the same on all ranks: same weights, same batch
    lockstep::model::FullMLP model(128, 16);
    const auto whole = lockstep::data::classification(32, 128);
    const auto mine = lockstep::data::slice(whole, comm.rank(), comm.size());
    torch::optim::Adam optimizer(model->parameters(), torch::optim::AdamOptions(1e-3));

    // region step
    for (int step = 0; step < 50; ++step) {
      auto loss = lockstep::naive_data_parallel_step(model->parameters(), optimizer, comm, [&] {
        // Scaled by this rank's share, so that the mean over ranks is the mean over all rows.
        return torch::nn::functional::cross_entropy(model->forward(mine.inputs), mine.targets) *
               (mine.share() * comm.size());
      });
      lockstep::all_reduce_mean(comm, loss);
      if (comm.rank() == 0 && step % 10 == 9) std::printf("step %2d  loss %.6f\n", step + 1, loss.item<double>());
    }
    // endregion
  });
}
