// Pipelines beside each other, in a world of threads: ranks [r * stages, (r + 1) * stages) are pipeline r.
#pragma once

#include "lockstep/parallel/pipeline/run/replicated.h"
#include "nets.h"

namespace lockstep::pipeline::test {

struct Choices {
  std::vector<std::int64_t> rows = {};  // of each replica, in the order of the batch
  bool recompute = false;
  DdpOptions ddp = {};
};

inline DdpOptions buckets_of(std::size_t bytes) {
  DdpOptions options;
  options.first_bucket_bytes = options.bucket_bytes = bytes;
  return options;
}

// One rank of one pipeline. Replicas start from different weights: those of the first count.
class Replica {
 public:
  Replica(Communicator& world, const Task& task, const Schedule& schedule, const Choices& choices)
      : number(world.rank() / schedule.ranks),
        pipe(world.split(number, world.rank()).value()),
        peers(world.split(pipe.rank(), world.rank()).value()) {
    const Sequential whole = seeded(task.make, 5 + static_cast<std::uint64_t>(number));
    const std::vector<Range> ranges = partition(costs_of(*whole), schedule.stages);
    for (std::size_t s = 0; s < ranges.size(); ++s) {
      if (schedule.rank_of_stage[s] != pipe.rank()) continue;
      networks.push_back(cut(*whole, ranges[s]));
      stages.push_back(std::make_shared<ReplicatedStage>(networks.back(),
                                                         StageOptions{.first = s == 0, .recompute = choices.recompute},
                                                         schedule.microbatches, peers, choices.ddp));
      for (const Tensor& parameter : networks.back()->parameters()) parameters.push_back(parameter);
    }
    const auto n = static_cast<std::size_t>(number);
    std::int64_t begin = 0, all = 0;
    for (std::size_t i = 0; i < choices.rows.size(); ++i) {
      if (i < n) begin += choices.rows[i];
      all += choices.rows[i];
    }
    const std::int64_t mine = choices.rows[n];
    inputs = task.inputs.narrow(0, begin, mine).tensor_split(schedule.microbatches);
    targets = task.targets.narrow(0, begin, mine).tensor_split(schedule.microbatches);
    const double weight =
        static_cast<double>(mine) * static_cast<double>(choices.rows.size()) / static_cast<double>(all);
    loss = [weight, of_task = task.loss](const Tensor& output, const Tensor& target) {
      return target.size(0) == 0 ? output.sum() * 0 : of_task(output, target) * weight;
    };
    executor.emplace(pipe, schedule, std::vector<std::shared_ptr<Stage>>(stages.begin(), stages.end()),
                     [this](const Tensor& output, const Tensor& target) { return loss(output, target); });
  }
  Replica(const Replica&) = delete;

  ExecutedStep step() { return executor->step(inputs, targets); }
  void finish() {
    for (const auto& stage : stages) stage->finish();
  }

  int number;
  Communicator pipe, peers;
  std::vector<Sequential> networks;
  std::vector<std::shared_ptr<ReplicatedStage>> stages;
  std::vector<Tensor> parameters, inputs, targets;
  LossFunction loss;  // scaled so that the mean over the replicas is the batch's mean
  std::optional<Executor> executor;
};

// [replica]; the losses of all of them are in the first.
inline std::vector<Trained> train_replicas(const Task& task, const Schedule& schedule, int steps,
                                           const Choices& choices, const std::string& transport = "shm") {
  const std::size_t replicas = choices.rows.size();
  std::vector<Trained> trained(replicas);
  trained[0].losses.resize(static_cast<std::size_t>(steps));
  std::mutex mutex;
  run_world(
      schedule.ranks * static_cast<int>(replicas),
      [&](Communicator& world) {
        Replica mine(world, task, schedule, choices);
        auto optimizer = sgd(mine.parameters, task.rate);
        for (int step = 0; step < steps; ++step) {
          optimizer.zero_grad();
          const ExecutedStep result = mine.step();
          mine.finish();
          optimizer.step();
          const std::lock_guard lock(mutex);
          if (result.loss)
            trained[0].losses[static_cast<std::size_t>(step)] += *result.loss / static_cast<double>(replicas);
        }
        const std::lock_guard lock(mutex);
        for (const Sequential& network : mine.networks)
          collect(trained[static_cast<std::size_t>(mine.number)], network);
      },
      transport);
  return trained;
}

inline void expect_same_bits(const std::vector<Trained>& replicas) {
  const std::map<std::string, Tensor> first(replicas[0].weights.begin(), replicas[0].weights.end());
  for (const Trained& replica : replicas)
    for (const auto& [name, weight] : replica.weights) EXPECT_TRUE(torch::equal(weight, first.at(name))) << name;
}

}  // namespace lockstep::pipeline::test
