// Small networks, what a single process makes of them, and the same by a pipeline of threads.
#pragma once

#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/pooling.h>
#include <torch/optim/sgd.h>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "lockstep/base/clock.h"
#include "lockstep/communicator.h"
#include "lockstep/model.h"
#include "lockstep/parallel/pipeline/run/executor.h"
#include "lockstep/parallel/pipeline/run/microbatches.h"
#include "lockstep/parallel/pipeline/run/partition.h"
#include "lockstep/parallel/pipeline/run/sharded_mlp.h"
#include "lockstep/parallel/pipeline/schedule/verify.h"
#include "numerics.h"

namespace lockstep::pipeline::test {

using lockstep::test::close;
using lockstep::test::kClose;
using torch::Tensor;
using torch::nn::Sequential;

// Ranks are threads here and torch's generator is one for all: draw under a lock, from a fresh seed.
inline std::mutex& generator() {
  static std::mutex mutex;
  return mutex;
}

template <typename Make>
auto seeded(Make&& make, std::uint64_t seed = 5) {
  const std::lock_guard lock(generator());
  torch::manual_seed(seed);
  return make();
}

inline Tensor mse(const Tensor& output, const Tensor& target) { return (output - target).pow(2).mean(); }
inline Tensor cross_entropy(const Tensor& output, const Tensor& target) {
  return torch::nn::functional::cross_entropy(output, target);
}

struct Task {
  std::function<Sequential()> make;
  Tensor inputs, targets;
  LossFunction loss;
  double rate = 0.1;
};

// Larger weights than torch draws: otherwise next to no gradient reaches the first of so many layers.
inline Sequential lively_mlp(std::int64_t dim, std::int64_t depth) {
  Sequential network(std::static_pointer_cast<torch::nn::SequentialImpl>(model::FullMLP(dim, depth).ptr()));
  const torch::NoGradGuard no_grad;
  for (Tensor& parameter : network->parameters())
    if (parameter.dim() == 2) parameter.mul_(2.4);
  return network;
}

inline Task mlp_task(std::int64_t rows = 13, std::int64_t depth = 9) {
  return seeded([&] {
    return Task{[=] { return lively_mlp(6, depth); }, torch::randn({rows, 6}), torch::randn({rows, 2}), mse, 0.02};
  });
}

inline Task cnn_task() {
  return seeded([] {
    return Task{[] {
                  const model::SimpleCNN cnn(std::vector<std::int64_t>{3, 4}, 12, 5, 8);
                  return Sequential(std::static_pointer_cast<torch::nn::SequentialImpl>(cnn.ptr()));
                },
                torch::randn({10, 1, 8, 8}), torch::randint(5, {10}, torch::kInt64), cross_entropy};
  });
}

struct Trained {
  std::vector<double> losses;
  std::vector<std::pair<std::string, Tensor>> weights;
  std::vector<int> peaks;  // [rank]
  std::vector<Timeline> last;
};

inline void collect(Trained& trained, const Sequential& network) {
  for (const auto& item : network->named_parameters())
    trained.weights.emplace_back(item.key(), item.value().detach().clone());
}

inline void expect_same(const Trained& got, const Trained& want) {
  ASSERT_EQ(got.losses.size(), want.losses.size());
  for (std::size_t i = 0; i < want.losses.size(); ++i)
    EXPECT_TRUE(close(got.losses[i], want.losses[i])) << "step " << i;
  std::map<std::string, Tensor> weights(got.weights.begin(), got.weights.end());
  EXPECT_EQ(weights.size(), want.weights.size());
  for (const auto& [name, weight] : want.weights) {
    ASSERT_TRUE(weights.contains(name)) << name;
    EXPECT_TRUE(close(weights[name], weight)) << name;
  }
}

inline torch::optim::SGD sgd(const std::vector<Tensor>& parameters, double rate) {
  return torch::optim::SGD(parameters, torch::optim::SGDOptions(rate).momentum(0.9));
}

inline Trained train_alone(const Task& task, int steps) {
  Trained trained;
  const Sequential network = seeded(task.make);
  auto optimizer = sgd(network->parameters(), task.rate);
  for (int step = 0; step < steps; ++step) {
    optimizer.zero_grad();
    const Tensor loss = task.loss(Sequential(network)->forward(task.inputs), task.targets);
    loss.backward();
    optimizer.step();
    trained.losses.push_back(loss.item<double>());
  }
  collect(trained, network);
  return trained;
}

inline void run_world(int ranks, const std::function<void(Communicator&)>& body, const std::string& transport = "shm") {
  transport::Options options;
  options.kind = parse_transport(transport);
  options.timeout = 20s;
  comm::Options comm_options;
  comm_options.timeout = 20s;
  thread_world(ranks, body, options, comm_options);
}

// This rank's stages of a network.
struct Part {
  std::vector<Sequential> networks;
  std::vector<std::shared_ptr<Stage>> stages;
  std::vector<Tensor> parameters;
};

inline Part part_of(const Task& task, const Schedule& schedule, Rank rank, bool recompute = false) {
  Part part;
  const Sequential whole = seeded(task.make);
  const std::vector<Range> ranges = partition(costs_of(*whole), schedule.stages);
  for (std::size_t s = 0; s < ranges.size(); ++s) {
    if (schedule.rank_of_stage[s] != rank) continue;
    part.networks.push_back(cut(*whole, ranges[s]));
    part.stages.push_back(std::make_shared<SequentialStage>(*part.networks.back(),
                                                            StageOptions{.first = s == 0, .recompute = recompute}));
    for (const Tensor& parameter : part.networks.back()->parameters()) part.parameters.push_back(parameter);
  }
  return part;
}

inline Trained train_pipeline(const Task& task, const Schedule& schedule, int steps, bool recompute = false,
                              const std::string& transport = "shm") {
  Trained trained;
  std::mutex mutex;
  trained.peaks.resize(static_cast<std::size_t>(schedule.ranks));
  trained.last.resize(static_cast<std::size_t>(schedule.ranks));
  run_world(
      schedule.ranks,
      [&](Communicator& comm) {
        const auto me = static_cast<std::size_t>(comm.rank());
        const Part part = part_of(task, schedule, comm.rank(), recompute);
        auto optimizer = sgd(part.parameters, task.rate);
        Executor pipeline(comm, schedule, part.stages, task.loss);
        const auto inputs =
            pipeline.has_first_stage() ? cut_batch(task.inputs, schedule.microbatches) : std::vector<Tensor>();
        const auto targets =
            pipeline.has_last_stage() ? cut_batch(task.targets, schedule.microbatches) : std::vector<Tensor>();
        for (int step = 0; step < steps; ++step) {
          optimizer.zero_grad();
          ExecutedStep result = pipeline.step(inputs, targets);
          optimizer.step();
          if (result.loss) trained.losses.push_back(*result.loss);
          trained.peaks[me] = std::max(trained.peaks[me], result.peak_activations);
          trained.last[me] = std::move(result.timeline);
        }
        const std::lock_guard lock(mutex);
        for (const Sequential& network : part.networks) collect(trained, network);
      },
      transport);
  return trained;
}

}  // namespace lockstep::pipeline::test
