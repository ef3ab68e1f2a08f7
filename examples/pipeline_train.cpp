// Pipeline parallelism: a network over several ranks, where each rank has only its own layers. Copy this to start.
//   lockstep run -n 4 -- pipeline_train [SCHEDULE [STEPS]]     1f1b by default; `lockstep schedule` lists all
#include <torch/nn/functional/loss.h>
#include <torch/optim/adam.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "lockstep/data.h"
#include "lockstep/error.h"
#include "lockstep/model.h"
#include "lockstep/pipeline.h"

int main(int argc, char** argv) {
  return lockstep::rank_main([&](lockstep::Communicator& comm) {
    torch::set_num_threads(1);
    torch::manual_seed(42);
    std::setvbuf(stdout, nullptr, _IOLBF, 0);  // each line is written at once
    const std::string schedule = argc > 1 ? argv[1] : "1f1b";
    const int steps = argc > 2 ? std::atoi(argv[2]) : 50;
    if (steps < 1) throw lockstep::UsageError("STEPS must be a number from 1 on");

    // region stages
    const auto layers = lockstep::model::mlp_layers(128, 16, 2);  // or any torch::nn::Sequential
    lockstep::Pipeline pipeline(layers, comm, {.schedule = schedule, .microbatches = 8});
    torch::optim::Adam optimizer(pipeline.parameters(), torch::optim::AdamOptions(1e-3));
    // endregion

    // region train
    const auto cross_entropy = [](const torch::Tensor& output, const torch::Tensor& targets) {
      return torch::nn::functional::cross_entropy(output, targets);
    };
    const auto batch = lockstep::data::classification(32, 128);  // the same on all ranks
    for (int step = 1; step <= steps; ++step) {
      optimizer.zero_grad();
      const double loss = pipeline.step(batch.inputs, batch.targets, cross_entropy);
      optimizer.step();
      if (comm.rank() == 0 && step % 10 == 0) std::printf("step %2d  loss %.6f\n", step, loss);
    }
    // endregion
  });
}
