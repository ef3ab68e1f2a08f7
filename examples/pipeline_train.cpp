// Pipeline parallelism: a network over several ranks, where each rank has only its own layers.
//   lockstep run -n 4 -- pipeline_train [SCHEDULE [STEPS]]     1f1b by default; `lockstep schedule` lists all
#include <torch/nn/functional/loss.h>
#include <torch/optim/adam.h>

#include <cstdio>
#include <string>

#include "lockstep/base/environment.h"
#include "lockstep/data/synthetic.h"
#include "lockstep/parallel/pipeline/executor.h"
#include "lockstep/parallel/pipeline/microbatches.h"
#include "lockstep/parallel/pipeline/sharded_mlp.h"

using namespace lockstep::pipeline;

constexpr int kMicrobatches = 8;
constexpr MLPSizes kSizes{.dim = 128, .depth = 16};

int main(int argc, char** argv) {
  return lockstep::rank_main([&](lockstep::Communicator& comm) {
    torch::set_num_threads(1);
    std::setvbuf(stdout, nullptr, _IOLBF, 0);  // each line is written at once
    const std::string name = argc > 1 ? argv[1] : "1f1b";
    const auto steps = argc > 2 ? lockstep::parse_int("STEPS", argv[2], 1, 1'000'000'000) : 50;

    // region stages
    const Schedule schedule = make_schedule(name, comm.size(), kMicrobatches);
    const std::vector<Range> ranges = partition(costs_of(kSizes), schedule.stages);
    std::vector<std::shared_ptr<Stage>> stages;  // this rank's stages: one, or several with virtual stages
    std::vector<torch::Tensor> parameters;
    for (std::size_t s = 0; s < ranges.size(); ++s) {
      if (schedule.rank_of_stage[s] != comm.rank()) continue;
      torch::manual_seed(42);  // a part draws all weights of the network and keeps its own
      const ShardedMLP part(kSizes, ranges[s]);
      stages.push_back(std::make_shared<SequentialStage>(*part, StageOptions{.first = s == 0}));
      for (const auto& parameter : part->parameters()) parameters.push_back(parameter);
    }
    // endregion

    // region train
    Executor pipeline(comm, schedule, stages, [](const auto& output, const auto& target) {
      return torch::nn::functional::cross_entropy(output, target);
    });
    torch::optim::Adam optimizer(parameters, torch::optim::AdamOptions(1e-3));

    const auto batch = lockstep::data::classification(32, kSizes.dim);  // the same on all ranks
    const auto inputs = cut_batch(batch.inputs, kMicrobatches);         // only the first stage uses the inputs,
    const auto targets = cut_batch(batch.targets, kMicrobatches);       // and only the last stage the targets
    for (std::int64_t step = 1; step <= steps; ++step) {
      optimizer.zero_grad();
      const StepResult result = pipeline.step(inputs, targets);
      optimizer.step();
      if (result.loss && step % 10 == 0)  // only the rank of the last stage has it
        std::printf("step %2ld  loss %.6f\n", static_cast<long>(step), *result.loss);
    }
    // endregion
  });
}
