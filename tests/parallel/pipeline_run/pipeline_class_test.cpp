// lockstep::Pipeline against a single process: the same losses and weights, whatever the model, the batch and the
// number of pipelines.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/optim/schedulers/step_lr.h>

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "lockstep/base/clock.h"
#include "lockstep/parallel/pipeline/run/parts.h"
#include "lockstep/pipeline.h"
#include "lockstep/weights.h"
#include "nets.h"

namespace lockstep::pipeline {
namespace {

using namespace test;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;
using torch::nn::Linear;

constexpr int kSteps = 20;
constexpr double kMaxNorm = 0.2;  // below the norms that occur, so that every step is clipped

struct Extras {
  bool clip = false;
  bool schedule_rate = false;
  std::vector<std::int64_t> sizes = {};  // rows of the batches in turn; empty: all rows
};

Tensor first_rows(const Tensor& whole, const Extras& extras, int step) {
  return extras.sizes.empty() ? whole
                              : whole.narrow(0, 0, extras.sizes[static_cast<std::size_t>(step) % extras.sizes.size()]);
}

// What one process does with the same batches. `microbatches` matters only for layers that look at a whole batch.
Trained alone(const Task& task, int steps, const Extras& extras = {}, int microbatches = 1) {
  Trained trained;
  Sequential network = seeded(task.make);
  auto optimizer = sgd(network->parameters(), task.rate);
  torch::optim::StepLR scheduler(optimizer, 7, 0.5);
  for (int step = 0; step < steps; ++step) {
    optimizer.zero_grad();
    const Tensor inputs = first_rows(task.inputs, extras, step), targets = first_rows(task.targets, extras, step);
    double mean = 0;
    for (int m = 0; m < microbatches; ++m) {
      const Tensor rows = targets.tensor_split(microbatches)[static_cast<std::size_t>(m)];
      const double share = static_cast<double>(rows.size(0)) / static_cast<double>(targets.size(0));
      const Tensor loss =
          task.loss(network->forward(inputs.tensor_split(microbatches)[static_cast<std::size_t>(m)]), rows) * share;
      loss.backward();
      mean += loss.item<double>();
    }
    if (extras.clip) torch::nn::utils::clip_grad_norm_(network->parameters(), kMaxNorm);
    optimizer.step();
    if (extras.schedule_rate) scheduler.step();
    trained.losses.push_back(mean);
  }
  collect(trained, network);
  return trained;
}

// The same through a Pipeline. Each rank checks that it gets the losses of rank 0.
Trained piped(const Task& task, int ranks, int steps, const PipelineOptions& options, const Extras& extras = {},
              bool pass_only_what_is_needed = false) {
  Trained trained;
  std::mutex mutex;
  std::vector<std::vector<double>> losses(static_cast<std::size_t>(ranks));
  run_world(ranks, [&](Communicator& comm) {
    const Sequential network =
        seeded(task.make, 5 + static_cast<std::uint64_t>(comm.rank()));  // rank 0's weights count
    Pipeline pipeline(network, comm, options);
    auto optimizer = sgd(pipeline.parameters(), task.rate);
    torch::optim::StepLR scheduler(optimizer, 7, 0.5);
    for (int step = 0; step < steps; ++step) {
      optimizer.zero_grad();
      Tensor inputs = first_rows(task.inputs, extras, step), targets = first_rows(task.targets, extras, step);
      // Now and then all ranks get all of it.
      if (pass_only_what_is_needed && !pipeline.has_first_stage() && step % 4 != 3) inputs = Tensor();
      if (pass_only_what_is_needed && !pipeline.has_last_stage()) targets = Tensor();
      losses[static_cast<std::size_t>(comm.rank())].push_back(pipeline.step(inputs, targets, task.loss));
      if (extras.clip) pipeline.clip_grad_norm(kMaxNorm);
      optimizer.step();
      if (extras.schedule_rate) scheduler.step();
    }
    const std::lock_guard lock(mutex);
    if (pipeline.number() == 0) collect(trained, pipeline.module());
  });
  trained.losses = losses[0];
  for (const auto& each : losses) EXPECT_EQ(each, losses[0]);
  return trained;
}

TEST(PipelineClass, TrainsAsASingleProcess) {
  for (const Task& task : {mlp_task(), cnn_task()})
    for (const char* schedule : {"gpipe", "1f1b", "interleaved", "zb-h1"}) {
      SCOPED_TRACE(schedule);
      expect_same(piped(task, 2, kSteps, {.schedule = schedule, .microbatches = 3}), alone(task, kSteps));
    }
}

TEST(PipelineClass, ThreeRanksWithFiveLayers) {
  const Task task = seeded([] {
    return Task{[] {
                  using namespace torch::nn;
                  return Sequential(Linear(6, 9), Tanh(), Linear(9, 9), Tanh(), Linear(9, 9), Tanh(), Linear(9, 9),
                                    Tanh(), Linear(9, 2));
                },
                torch::randn({13, 6}), torch::randn({13, 2}), mse, 0.05};
  });
  for (const Balance balance : {Balance::count, Balance::parameters}) {
    PipelineOptions options{.microbatches = 4};
    options.balance = balance;
    expect_same(piped(task, 3, kSteps, options), alone(task, kSteps));
  }
}

TEST(PipelineClass, SeveralPipelines) {
  const Task task = mlp_task();
  for (const int each : {1, 2, 3}) {
    SCOPED_TRACE(each);
    PipelineOptions options{.microbatches = 2};
    options.ranks = each;
    expect_same(piped(task, 6, kSteps, options), alone(task, kSteps));
  }
}

TEST(PipelineClass, BatchesOfOtherSizesAndRanksThatGetOnlyWhatTheyNeed) {
  const Task task = mlp_task();
  const Extras extras{.sizes = {13, 13, 5, 13, 13, 2, 1}};
  for (const int ranks_each : {4, 2}) {
    PipelineOptions options{.microbatches = 3};
    options.ranks = ranks_each;
    for (const bool only_what_is_needed : {false, true})
      expect_same(piped(task, 4, kSteps, options, extras, only_what_is_needed), alone(task, kSteps, extras));
  }
}

TEST(PipelineClass, ClipsByTheNormOfTheWholeModelAndFollowsASchedulerOfTheRate) {
  const Task task = mlp_task();
  const Extras extras{.clip = true, .schedule_rate = true};
  const Trained want = alone(task, kSteps, extras);
  EXPECT_FALSE(close(want.losses.back(), alone(task, kSteps, {}).losses.back())) << "clipping makes no difference";
  for (const int ranks_each : {4, 2}) {
    PipelineOptions options{.microbatches = 4};
    options.ranks = ranks_each;
    expect_same(piped(task, 4, kSteps, options, extras), want);
  }
}

TEST(PipelineClass, TheNormIsThatOfTheWholeModel) {
  const Task task = mlp_task();
  Sequential whole = seeded(task.make);
  task.loss(whole->forward(task.inputs), task.targets).backward();
  for (const double type : {1.0, 2.0, std::numeric_limits<double>::infinity()}) {
    const double want = torch::nn::utils::clip_grad_norm_(whole->parameters(), 1e9, type);
    run_world(3, [&](Communicator& comm) {
      Pipeline pipeline(seeded(task.make), comm, {.microbatches = 2});
      pipeline.step(task.inputs, task.targets, task.loss);
      EXPECT_TRUE(close(pipeline.clip_grad_norm(1e9, type), want)) << type;
    });
  }
}

// BatchNorm sees one microbatch at a time, as a single process does that accumulates gradients.
TEST(PipelineClass, BatchNorm) {
  const Task task = seeded([] {
    return Task{[] {
                  using namespace torch::nn;
                  return Sequential(Linear(6, 8), BatchNorm1d(8), ReLU(), Linear(8, 8), BatchNorm1d(8), Linear(8, 2));
                },
                torch::randn({12, 6}), torch::randn({12, 2}), mse, 0.05};
  });
  for (const char* schedule : {"1f1b", "zb-h1"})
    expect_same(piped(task, 2, kSteps, {.schedule = schedule, .microbatches = 3}), alone(task, kSteps, {}, 3));
  // The statistics are saved with the weights, and they are those of the single process.
  Sequential network = seeded(task.make);
  for (const Tensor& rows : task.inputs.tensor_split(3)) network->forward(rows);
  std::mutex mutex;
  run_world(2, [&](Communicator& comm) {
    Pipeline pipeline(seeded(task.make), comm, {.microbatches = 3});
    pipeline.step(task.inputs, task.targets, task.loss);
    const std::lock_guard lock(mutex);
    const auto wanted = network->named_buffers();
    for (const auto& item : pipeline.module()->named_buffers())
      EXPECT_TRUE(close(item.value().to(torch::kFloat), wanted[item.key()].to(torch::kFloat))) << item.key();
  });
}

// --- activations that are not one tensor ---

using Pair = std::tuple<Tensor, Tensor>;

struct FanOutImpl : torch::nn::Module {
  Pair forward(const Tensor& x) { return {torch::tanh(layer(x)), (x > 0).select(1, 0)}; }  // features and a mask
  Linear layer = register_module("layer", Linear(6, 8));
};
TORCH_MODULE(FanOut);

struct MixImpl : torch::nn::Module {
  Pair forward(const Pair& both) {
    const auto& [features, mask] = both;
    return {torch::tanh(layer(features)) * mask.unsqueeze(1).to(torch::kFloat) + features, mask};
  }
  Linear layer = register_module("layer", Linear(8, 8));
};
TORCH_MODULE(Mix);

// Several tensors with gradients, one of which the next module does not use.
struct ForkImpl : torch::nn::Module {
  std::vector<Tensor> forward(const Pair& both) {
    const Tensor hidden = layer(std::get<0>(both));
    return {hidden, torch::sin(hidden), hidden * 2};
  }
  Linear layer = register_module("layer", Linear(8, 8));
};
TORCH_MODULE(Fork);

struct JoinImpl : torch::nn::Module {
  Tensor forward(const std::vector<Tensor>& all) { return layer(all[0] + all[1]); }
  Linear layer = register_module("layer", Linear(8, 2));
};
TORCH_MODULE(Join);

Task tuple_task() {
  return seeded([] {
    return Task{[] { return Sequential(FanOut(), Mix(), Mix(), Fork(), Join()); }, torch::randn({13, 6}),
                torch::randn({13, 2}), mse, 0.05};
  });
}

TEST(PipelineClass, ActivationsThatAreTuplesAndLists) {
  const Task task = tuple_task();
  const Trained want = alone(task, kSteps);
  for (const char* schedule : {"1f1b", "zb-h1", "interleaved"})
    for (const bool recompute : {false, true})
      for (const int ranks : {2, 5}) {
        if (ranks == 5 && std::string(schedule) == "interleaved") continue;  // five layers are no ten stages
        SCOPED_TRACE(fmt::format("{} {} {}", schedule, ranks, recompute));
        PipelineOptions options{.schedule = schedule, .microbatches = 3};
        options.recompute = recompute;
        expect_same(piped(task, ranks, kSteps, options), want);
      }
  PipelineOptions two{.microbatches = 2};
  two.ranks = 2;
  expect_same(piped(task, 4, kSteps, two), want);
}

struct TextImpl : torch::nn::Module {
  std::string forward(const Tensor&) { return "text"; }
  Linear layer = register_module("layer", Linear(6, 6));
};
TORCH_MODULE(Text);

struct EndImpl : torch::nn::Module {
  Tensor forward(const std::string&) { return torch::ones({1}); }
  Linear layer = register_module("layer", Linear(1, 1));
};

TEST(PipelineClass, AnActivationThatCantTravelIsSaid) {
  EXPECT_THAT(
      [] {
        run_world(2, [](Communicator& comm) {
          Sequential model(Text(), std::make_shared<EndImpl>());
          Pipeline pipeline(model, comm, {.microbatches = 1});
          pipeline.step(torch::ones({2, 6}), torch::ones({2, 1}), mse);
        });
      },
      ThrowsMessage<Error>(AllOf(HasSubstr("rank 0"), HasSubstr("returns a std::"), HasSubstr("can't be sent"),
                                 HasSubstr("std::tuple of 2 to 4 Tensors"))));
}

// --- models that are refused ---

TEST(PipelineClass, TiedWeightsOverACutAreRefusedByName) {
  // libtorch's Sequential can hold one module twice: that is one parameter in two places.
  const auto twice = [] {
    return seeded([] {
      const Linear one(6, 6);
      Sequential model;
      model->push_back("in", one);
      model->push_back("middle", Linear(6, 6));
      model->push_back("out", one);
      return model;
    });
  };
  EXPECT_THAT(
      [&] { run_world(3, [&](Communicator& comm) { Pipeline pipeline(twice(), comm, {.microbatches = 2}); }); },
      ThrowsMessage<UsageError>(AllOf(HasSubstr("in.weight (stage 0) and out.weight (stage 2) are one parameter"),
                                      HasSubstr("weights that are not tied"))));
  // In one stage they are fine.
  const Task task = seeded([] { return Task{{}, torch::randn({9, 6}), torch::randn({9, 6}), mse, 0.05}; });
  Task own = task;
  own.make = [] {
    const Linear one(6, 6);
    Sequential model;
    model->push_back("in", one);
    model->push_back("again", one);
    model->push_back("middle", Linear(6, 6));
    model->push_back("end", Linear(6, 6));
    return model;
  };
  PipelineOptions options{.microbatches = 2};
  options.balance = Balance::time;
  options.module_seconds = {1, 1, 1, 1};  // two modules for each rank
  run_world(2, [&](Communicator& comm) {
    Pipeline pipeline(seeded(own.make), comm, options);
    EXPECT_EQ(pipeline.parameters().size(), comm.rank() == 0 ? 2U : 4U) << "each once";
  });
}

TEST(PipelineClass, TiedWeightsOfAFactoryAreRefusedToo) {
  const auto shared = std::make_shared<torch::nn::LinearImpl>(6, 6);
  const model::Layer tied{model::Layer::kUnknown, [shared] { return torch::nn::AnyModule(shared); }};
  const model::Layer own{model::Layer::kUnknown, [] { return torch::nn::AnyModule(Linear(6, 6)); }};
  EXPECT_THAT(
      [&] {
        run_world(3, [&](Communicator& comm) {
          Pipeline pipeline(std::vector<model::Layer>{tied, own, tied}, comm, {.microbatches = 2});
        });
      },
      ThrowsMessage<UsageError>(HasSubstr("0.weight (stage 0) and 2.weight (stage 2) are one parameter")));
}

TEST(PipelineClass, RanksWithDifferentModels) {
  EXPECT_THAT(
      [] {
        run_world(2, [](Communicator& comm) {
          const Sequential model(Linear(6, comm.rank() == 0 ? 6 : 7), Linear(comm.rank() == 0 ? 6 : 7, 2));
          Pipeline pipeline(model, comm);
        });
      },
      ThrowsMessage<Mismatch>(HasSubstr("0.weight")));
}

TEST(PipelineClass, BatchesThatDoNotFit) {
  const Task task = mlp_task();
  const auto steps_with = [&](int ranks_each, const std::function<std::pair<Tensor, Tensor>(Communicator&)>& batch) {
    return [=] {
      run_world(4, [&](Communicator& comm) {
        PipelineOptions options{.microbatches = 2};
        options.ranks = ranks_each;
        Pipeline pipeline(seeded(task.make), comm, options);
        const auto [inputs, targets] = batch(comm);
        pipeline.step(inputs, targets, task.loss);
      });
    };
  };
  EXPECT_THAT(steps_with(4, [&](Communicator&) { return std::pair(task.inputs, task.targets.narrow(0, 0, 12)); }),
              ThrowsMessage<UsageError>(HasSubstr("the inputs have 13 rows, and the targets have 12")));
  EXPECT_THAT(steps_with(4,
                         [&](Communicator& comm) {
                           const std::int64_t rows = comm.rank() == 3 ? 12 : 13;
                           return std::pair(task.inputs.narrow(0, 0, rows), task.targets.narrow(0, 0, rows));
                         }),
              ThrowsMessage<Mismatch>(HasSubstr("rank 3 was given a batch of 12 rows in step 0, rank 0 one of 13")));
  EXPECT_THAT(steps_with(4,
                         [&](Communicator& comm) {
                           const bool other = comm.rank() == 3;
                           return std::pair(other ? task.inputs.to(torch::kDouble) : task.inputs, task.targets);
                         }),
              ThrowsMessage<Mismatch>(HasSubstr("have another shape or type on rank 3 than on rank 0")));
  // Two pipelines, each of which is content with its own batch: their shares would not add up to one batch.
  EXPECT_THAT(steps_with(2,
                         [&](Communicator& comm) {
                           const std::int64_t rows = comm.rank() < 2 ? 13 : 12;
                           return std::pair(task.inputs.narrow(0, 0, rows), task.targets.narrow(0, 0, rows));
                         }),
              ThrowsMessage<Mismatch>(HasSubstr("ranks disagree: the batch of step 0 has")));
  EXPECT_THAT(steps_with(4, [&](Communicator&) { return std::pair(Tensor(), task.targets); }),
              ThrowsMessage<UsageError>(HasSubstr("rank 0 has the first stage, and got no inputs")));
  EXPECT_THAT(steps_with(4, [&](Communicator&) { return std::pair(task.inputs, Tensor()); }),
              ThrowsMessage<UsageError>(HasSubstr("rank 3 has the last stage, and got no targets")));
}

TEST(PipelineClass, OptionsThatDoNotFit) {
  const Task task = mlp_task();
  const auto made_with = [&](const std::function<void(PipelineOptions&)>& change) {
    return [=] {
      run_world(4, [&](Communicator& comm) {
        PipelineOptions options;
        change(options);
        Pipeline pipeline(seeded(task.make), comm, options);
      });
    };
  };
  EXPECT_THAT(made_with([](auto& o) { o.ranks = 3; }),
              ThrowsMessage<UsageError>(HasSubstr("4 ranks are no whole number of pipelines of 3 ranks")));
  EXPECT_THAT(made_with([](auto& o) { o.schedule = "1f1c"; }), ThrowsMessage<UsageError>(HasSubstr("1f1b")));
  EXPECT_THAT(made_with([](auto& o) { o.balance = Balance::time; }),
              ThrowsMessage<UsageError>(HasSubstr("PipelineOptions::sample")));
  EXPECT_THROW(made_with([](auto& o) { o.microbatches = 0; })(), UsageError);
}

// --- the model as a factory ---

TEST(PipelineClass, LayersAreDrawnAsTheWholeModelIs) {
  const std::vector<model::Layer> layers = model::mlp_layers(6, 5, 2);
  std::vector<model::Layer> uncounted = layers;
  for (model::Layer& layer : uncounted) layer.parameters = model::Layer::kUnknown;
  const auto wanted = seeded([] { return model::FullMLP(6, 5); });
  for (const auto& list : {layers, uncounted}) {
    std::mutex mutex;
    std::size_t found = 0;
    torch::manual_seed(5);
    run_world(3, [&](Communicator& comm) {
      Pipeline pipeline(list, comm, {.schedule = "interleaved", .microbatches = 3});
      const std::lock_guard lock(mutex);
      for (const auto& item : pipeline.module()->named_parameters()) {
        EXPECT_TRUE(torch::equal(item.value(), wanted->named_parameters()[item.key()])) << item.key();
        ++found;
      }
    });
    EXPECT_EQ(found, wanted->parameters().size());
    torch::manual_seed(5);
    const model::FullMLP again(6, 5);
    const Tensor next = torch::rand({3});
    torch::manual_seed(5);
    run_world(1, [&](Communicator& comm) { Pipeline pipeline(list, comm, {.microbatches = 3}); });
    EXPECT_TRUE(torch::equal(torch::rand({3}), next)) << "the generator is left as the whole model leaves it";
  }
}

TEST(PipelineClass, BalanceByMeasuredTimeIsTheSameOnAllRanks) {
  const Task task = mlp_task();
  std::vector<std::string> layouts(3);
  run_world(3, [&](Communicator& comm) {
    PipelineOptions options{.microbatches = 2};
    options.balance = Balance::time;
    if (comm.rank() == 0) options.sample = task.inputs.narrow(0, 0, 6);
    Pipeline pipeline(seeded(task.make), comm, options);
    layouts[static_cast<std::size_t>(comm.rank())] = pipeline.layout();
    pipeline.step(task.inputs, task.targets, task.loss);
  });
  EXPECT_THAT(layouts[0], HasSubstr("stage  rank  modules"));
  EXPECT_EQ(layouts[1], layouts[0]);
  EXPECT_EQ(layouts[2], layouts[0]);
}

// --- what else it offers ---

TEST(PipelineClass, InfersOnAllRanksWithoutDropout) {
  const Task task = seeded([] {
    return Task{[] {
                  return Sequential(Linear(6, 8), torch::nn::Dropout(0.5), torch::nn::ReLU(), Linear(8, 8),
                                    torch::nn::ReLU(), Linear(8, 3));
                },
                torch::randn({5, 6}), torch::randn({5, 3}), mse, 0.05};
  });
  Sequential whole = seeded(task.make);
  whole->eval();
  const Tensor want = whole->forward(task.inputs).detach();
  run_world(4, [&](Communicator& comm) {
    PipelineOptions options{.microbatches = 2};
    options.ranks = 2;
    Pipeline pipeline(seeded(task.make), comm, options);
    pipeline.eval();
    EXPECT_TRUE(close(pipeline.infer(task.inputs), want));
    const Tensor at_last = pipeline.infer_at_last(task.inputs);
    EXPECT_EQ(at_last.defined(), pipeline.has_last_stage());
    pipeline.train();
    EXPECT_TRUE(pipeline.module()->is_training());
    EXPECT_EQ(pipeline.pipelines(), 2);
    EXPECT_EQ(pipeline.number(), comm.rank() / 2);
  });
}

TEST(PipelineClass, Statistics) {
  const Task task = mlp_task();
  run_world(4, [&](Communicator& comm) {
    PipelineOptions options{.microbatches = 3};
    options.ranks = 2;
    Pipeline pipeline(seeded(task.make), comm, options);
    const double loss = pipeline.step(task.inputs, task.targets, task.loss);
    const PipelineStatistics& s = pipeline.statistics();
    EXPECT_GT(s.forward, 0);
    EXPECT_GT(s.backward, 0);
    EXPECT_GT(s.reductions, 0);
    EXPECT_GE(s.seconds, s.forward + s.backward + s.messages);
    EXPECT_GE(s.peak_activations, 1);
    EXPECT_EQ(s.timeline.moments.size(), pipeline.schedule().actions[static_cast<std::size_t>(comm.rank() % 2)].size());
    ASSERT_EQ(s.losses.size(), 2U);
    EXPECT_TRUE(close((7 * s.losses[0] + 6 * s.losses[1]) / 13, loss));  // 13 rows are 7 and 6
  });
}

TEST(PipelineClass, ScheduleFromAFile) {
  const Task task = mlp_task();
  const std::filesystem::path file =
      std::filesystem::temp_directory_path() / fmt::format("lockstep-{}.csv", ::getpid());
  std::ofstream(file) << "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n";
  PipelineOptions options{.schedule = file.string()};
  expect_same(piped(task, 2, kSteps, options), alone(task, kSteps));
  expect_same(piped(task, 4, kSteps, options), alone(task, kSteps));  // two pipelines: the file has two ranks
  std::filesystem::remove(file);
}

TEST(PipelineClass, SavesAndLoadsUnderTheNamesOfTheWhole) {
  Task task = mlp_task();
  task.make = [] {
    Sequential model;
    for (const char* name : {"z", "y", "x", "w"}) {
      model->push_back(name, Linear(6, 6));
      model->push_back(std::string(name) + "_act", torch::nn::Tanh());
    }
    model->push_back("head", Linear(6, 2));
    return model;
  };
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / fmt::format("lockstep-save-{}", ::getpid());
  std::filesystem::create_directory(folder);
  const std::string file = folder / "pipeline", whole_file = folder / "whole";
  Sequential whole = seeded(task.make, 77);
  weights::save_weights(whole_file, *whole, {{"made", "by a test"}});
  run_world(4, [&](Communicator& comm) {
    PipelineOptions options{.microbatches = 2};
    options.ranks = 2;
    Pipeline pipeline(seeded(task.make), comm, options);
    pipeline.load(whole_file);
    for (const auto& item : pipeline.module()->named_parameters())
      EXPECT_TRUE(torch::equal(item.value(), whole->named_parameters()[item.key()])) << item.key();
    pipeline.save(file, {{"made", "by a test"}});
    // The first step after loading trains the loaded weights on both pipelines.
    auto optimizer = sgd(pipeline.parameters(), task.rate);
    const double loss = pipeline.step(task.inputs, task.targets, task.loss);
    EXPECT_TRUE(close(loss, task.loss(Sequential(std::dynamic_pointer_cast<torch::nn::SequentialImpl>(whole->clone()))
                                          ->forward(task.inputs),
                                      task.targets)
                                .item<double>()));
  });
  const auto bytes = [](const std::string& path) {
    std::ifstream stream(path, std::ios::binary);
    return std::string{std::istreambuf_iterator<char>(stream), {}};
  };
  EXPECT_EQ(bytes(file), bytes(whole_file));
  std::filesystem::remove_all(folder);
}

// After an error that the program has caught, the destructor must not wait for messages of the step that failed.
TEST(PipelineClass, DestructionDoesNotWaitForAStepThatFailed) {
  constexpr auto kTimeout = 2s;
  transport::Options options;
  options.timeout = kTimeout;
  const Task task = mlp_task(12);
  thread_world(
      2,
      [&](Communicator& comm) {
        auto pipeline = std::make_unique<Pipeline>(seeded(task.make), comm, PipelineOptions{.microbatches = 4});
        if (comm.rank() == 0) return std::this_thread::sleep_for(3 * kTimeout);
        EXPECT_THROW(pipeline->step({}, task.targets, task.loss), TimedOut);
        const auto before = Clock::now();
        pipeline.reset();
        EXPECT_LT(Clock::now() - before, kTimeout) << "it waited for the message once more";
      },
      options);
}

}  // namespace
}  // namespace lockstep::pipeline
