// Training through pipelines, on ranks that are threads: what a rank makes of a model, and the single process's losses
// and weights.
#include "lockstep/train/pipeline_strategy.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/functional/loss.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <mutex>

#include "lockstep/communicator.h"
#include "lockstep/data.h"
#include "lockstep/error.h"
#include "lockstep/model.h"
#include "lockstep/train/feed.h"
#include "lockstep/train/progress.h"
#include "lockstep/training.h"
#include "lockstep/weights.h"
#include "numerics.h"

namespace lockstep::train {
namespace {

using weights::load_tensors;
using weights::Weights;

namespace fs = std::filesystem;
using pipeline::Range;
using test::close;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;

TrainingConfig small(const std::string& schedule, int stages, int replicas = 1) {
  TrainingConfig config{.strategy = StrategyKind::pipeline,
                        .ranks = stages * replicas,
                        .batch = 13,
                        .steps = 12,
                        .optimizer = OptimizerKind::sgd,
                        .lr = 0.1};
  config.model.dim = 8;
  config.model.depth = 7;
  config.pipeline.schedule = schedule;
  config.pipeline.stages = stages;
  config.pipeline.microbatches = 3;
  return config;
}

TrainingConfig alone(TrainingConfig config) {
  config.strategy = StrategyKind::single;
  config.ranks = 1;
  config.pipeline = {};
  return config;
}

Result run(TrainingConfig config) {
  config = checked(config);
  Result result;
  thread_world(config.ranks, [&](Communicator& comm) {
    Training training(config, comm.rank(), comm.size());
    Progress silent(-1, Progress::Style::plain, training.steps());
    const Result mine = training.run(comm, silent);
    if (comm.rank() == 0) result = mine;
  });
  return result;
}

void expect_same_losses(const Result& got, const Result& want) {
  ASSERT_EQ(got.losses.size(), want.losses.size());
  for (std::size_t i = 0; i < want.losses.size(); ++i) EXPECT_TRUE(close(got.losses[i], want.losses[i])) << i;
  EXPECT_TRUE(got.digests_agree());
  EXPECT_EQ(got.parameters, want.parameters);
  EXPECT_EQ(got.gradient_bytes, want.gradient_bytes);
}

class Files : public testing::Test {
 protected:
  Files() {
    std::string name = (fs::temp_directory_path() / "lockstep-XXXXXX").string();
    folder = ::mkdtemp(name.data());
  }
  ~Files() override { fs::remove_all(folder); }
  std::string path(const char* name) const { return (folder / name).string(); }
  fs::path folder;
};
using PipelineTraining = Files;

TEST_F(PipelineTraining, MakesTheSingleProcesssLossesAndWeights) {
  TrainingConfig single = alone(small("", 2));
  single.save = path("single");
  const Result want = run(single);
  EXPECT_LT(want.losses.back(), want.losses.front());
  for (const std::string& name : pipeline::schedule_names())
    for (const auto& [stages, replicas] : {std::pair{1, 1}, {2, 1}, {3, 1}, {2, 2}, {2, 3}, {1, 2}}) {
      SCOPED_TRACE(fmt::format("{}, {} x {}", name, replicas, stages));
      TrainingConfig config = small(name, stages, replicas);
      config.save = path("pipeline");
      const Result got = run(config);
      expect_same_losses(got, want);
      ASSERT_THAT(got.shares, SizeIs(stages * replicas));
      ASSERT_TRUE(got.pipeline);
      EXPECT_THAT(got.pipeline->peak_activations, SizeIs(stages * replicas));
      const Weights a = load_tensors(path("single")), b = load_tensors(path("pipeline"));
      const std::map<std::string, torch::Tensor> found(b.tensors.begin(), b.tensors.end());
      ASSERT_EQ(found.size(), a.tensors.size());
      for (const auto& [tensor, weight] : a.tensors) EXPECT_TRUE(close(found.at(tensor), weight)) << tensor;
      EXPECT_EQ(a.metadata, b.metadata);
    }
}

TEST_F(PipelineTraining, GoesOnFromTheWholesFile) {
  TrainingConfig first = alone(small("", 2));
  first.save = path("weights");
  run(first);
  TrainingConfig single = alone(small("", 2));
  single.load = path("weights");
  single.seed = 7;
  const Result want = run(single);
  for (const auto& [stages, replicas] : {std::pair{2, 1}, {2, 2}}) {
    TrainingConfig config = small("interleaved", stages, replicas);
    config.load = path("weights");
    config.seed = 7;
    expect_same_losses(run(config), want);
  }
  TrainingConfig deeper = small("1f1b", 2);
  deeper.load = path("weights");
  deeper.model.depth = 8;
  EXPECT_THROW(run(deeper), UsageError);
  deeper.model.depth = 6;
  EXPECT_THROW(run(deeper), UsageError);
}

TEST_F(PipelineTraining, OtherChoicesChangeNoNumbers) {
  const Result want = run(alone(small("", 2)));
  TrainingConfig config = small("gpipe", 2);
  config.pipeline.recompute = true;
  expect_same_losses(run(config), want);
  for (const auto balance : {pipeline::Balance::count, pipeline::Balance::parameters}) {
    config = small("1f1b", 3);
    config.pipeline.balance = balance;
    expect_same_losses(run(config), want);
  }
  config = small("1f1b", 3);
  config.pipeline.balance = pipeline::Balance::time;
  config.pipeline.module_seconds = {9, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
  expect_same_losses(run(config), want);
  config = small("interleaved", 2);
  config.pipeline.virtual_stages = 4;
  expect_same_losses(run(config), want);
  config = small("zb-h1", 2, 2);
  config.bucket_mb = 1e-4;
  expect_same_losses(run(config), want);
  config = small("", 2);
  config.pipeline.schedule = path("own.csv");
  std::ofstream(config.pipeline.schedule) << "0F0,3F0,3B0,0B0\n1F0,2F0,2B0,1B0\n";
  config.pipeline.microbatches = 0;
  expect_same_losses(run(config), want);
}

TEST_F(PipelineTraining, ACnnAndRegression) {
  for (const bool cnn : {true, false}) {
    TrainingConfig config = small("zb-h1", 2, 2);
    if (cnn)
      config.model = {.kind = model::ModelKind::cnn, .channels = {2, 3}, .hidden = 8, .image_side = 8};
    else
      config.data = data::DataKind::regression;
    expect_same_losses(run(config), run(alone(config)));
  }
}

TEST_F(PipelineTraining, EmulatedTrainsNothing) {
  TrainingConfig config = small("1f1b", 2);
  config.pipeline.emulate = pipeline::Times{.forward = 0.002, .input = 0.003, .weight = 0.004};
  config.steps = 3;
  const Result result = run(config);
  for (const double loss : result.losses) EXPECT_TRUE(std::isnan(loss));
  ASSERT_TRUE(result.pipeline);
  // 3 microbatches of 9 ms, and the bubble of one more.
  EXPECT_NEAR(result.pipeline->seconds_predicted, 0.036, 1e-9);
  EXPECT_NEAR(result.pipeline->bubble_predicted, 0.25, 1e-9);
  EXPECT_GE(result.pipeline->seconds_measured, 0.036);
  EXPECT_GE(result.pipeline->times[1].forward, 0.002);
}

// --- one step after another, by hand ---

// Ranks are threads here, and torch's generator is one for all.
template <typename Body>
auto locked(Body body) {
  static std::mutex generator;
  const std::lock_guard lock(generator);
  return body();
}

// This rank's strategy and its rows of a batch.
struct Rig {
  Rig(const TrainingConfig& checked_config, Communicator& comm)
      : config(checked_config),
        parts(locked([&] { return make_parts(config, comm.rank()); })),
        strategy(make_strategy({config, parts.joined(), comm, &parts})) {}

  TrainingConfig config;
  pipeline::Parts parts;
  std::unique_ptr<Strategy> strategy;
};

// Two pipelines, and steps with batches of these sizes: the losses of a single process.
void expect_losses_of(const std::vector<std::int64_t>& sizes) {
  const TrainingConfig config = checked(small("1f1b", 2, 2));
  torch::manual_seed(1);
  const torch::Tensor inputs = torch::randn({13, 8}), targets = torch::randint(2, {13}, torch::kInt64);
  std::vector<double> losses(sizes.size()), shown(sizes.size()), want;
  {
    torch::manual_seed(config.seed);
    const TrainingConfig one = checked(alone(small("1f1b", 2, 2)));
    const auto model = model::make_model(one.model);
    thread_world(1, [&](Communicator& comm) {
      const auto strategy = make_strategy({one, model, comm});
      for (const std::int64_t rows : sizes) {
        const data::Batch batch{inputs.narrow(0, 0, rows), targets.narrow(0, 0, rows), rows};
        want.push_back(strategy->step({&batch, 1}).loss);
      }
    });
  }
  std::mutex mutex;
  thread_world(4, [&](Communicator& comm) {
    Rig rig(config, comm);
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      const data::Batch whole{inputs.narrow(0, 0, sizes[i]), targets.narrow(0, 0, sizes[i]), sizes[i]};
      const data::Batch mine = data::slice(whole, comm.rank() / 2, 2);
      const StepResult result = rig.strategy->step({&mine, 1});
      const std::lock_guard lock(mutex);
      losses[i] += result.loss;
      if (comm.rank() == 0) shown[i] = result.shown.value();
    }
    EXPECT_THAT(rig.strategy->record()->steps, SizeIs(sizes.size()));
  });
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    EXPECT_TRUE(close(losses[i], want[i])) << i;
    EXPECT_TRUE(std::isfinite(shown[i])) << i;
  }
}

// The last batch of an epoch may be smaller.
TEST(PipelineStrategy, BatchesOfOtherSizes) { expect_losses_of({13, 13, 5, 2, 13}); }

TEST(PipelineStrategy, ABatchThatLeavesAPipelineWithoutRows) { expect_losses_of({13, 1, 13}); }

TEST(PipelineStrategy, ShowsTheFirstPipelinesMeanOnRank0) {
  const TrainingConfig config = checked(small("interleaved", 2, 2));
  torch::manual_seed(1);
  const data::Batch whole{torch::randn({13, 8}), torch::randint(2, {13}, torch::kInt64), 13};
  const data::Batch first = data::slice(whole, 0, 2);
  torch::manual_seed(config.seed);
  const double want =
      torch::nn::functional::cross_entropy(model::make_model(config.model)->forward(first.inputs), first.targets)
          .item<double>();
  thread_world(4, [&](Communicator& comm) {
    Rig rig(config, comm);
    const data::Batch mine = data::slice(whole, comm.rank() / 2, 2);
    const StepResult result = rig.strategy->step({&mine, 1});
    if (comm.rank() == 0) {
      EXPECT_TRUE(close(result.shown.value(), want));
    }
    EXPECT_GT(result.phases.forward, 0);
    EXPECT_GT(result.phases.backward, 0);
    EXPECT_GE(result.seconds, result.phases.forward + result.phases.backward);
  });
}

TEST(PipelineStrategy, RemembersItsLastSteps) {
  TrainingConfig config = small("1f1b", 1);
  config.model.depth = 1;
  config = checked(config);
  thread_world(1, [&](Communicator& comm) {
    Rig rig(config, comm);
    const data::Batch batch{torch::ones({4, 8}), torch::zeros({4}, torch::kInt64), 4};
    Clock::time_point last;
    for (std::size_t step = 0; step < PipelineRecord::kSteps + 5; ++step) {
      rig.strategy->step({&batch, 1});
      last = rig.strategy->record()->steps.back().timeline.ended;
    }
    const auto& steps = rig.strategy->record()->steps;
    EXPECT_THAT(steps, SizeIs(PipelineRecord::kSteps));
    EXPECT_EQ(steps.back().timeline.ended, last);
    EXPECT_LT(steps.front().timeline.ended, last);
    EXPECT_EQ(rig.strategy->record()->peak_activations, 1);
    EXPECT_GT(steps.back().optimizer, 0);
  });
}

TEST(PipelineStrategy, InfersThroughAllStages) {
  const TrainingConfig config = checked(small("interleaved", 2, 2));
  const torch::Tensor inputs = torch::ones({3, 8});
  torch::manual_seed(config.seed);
  const torch::Tensor want = model::make_model(config.model)->forward(inputs).detach();
  thread_world(4, [&](Communicator& comm) {
    Rig rig(config, comm);
    const torch::NoGradGuard no_gradients;
    const torch::Tensor output = rig.strategy->infer(inputs);
    EXPECT_EQ(output.defined(), comm.rank() % 2 == 1);
    if (output.defined()) {
      EXPECT_TRUE(torch::equal(output, want));
    }
  });
}

// --- what a rank has of a model ---

TEST(MakeParts, HaveTheWholesBitsAndLeaveTheGeneratorWhereItWould) {
  for (const char* schedule : {"1f1b", "interleaved"}) {
    const TrainingConfig config = checked(small(schedule, 2, 2));
    torch::manual_seed(config.seed);
    const auto whole = model::make_model(config.model);
    const torch::Tensor next = torch::rand({3});
    for (Rank first = 0; first < 4; first += 2) {
      std::size_t found = 0;
      for (const Rank rank : {first, first + 1}) {
        const auto parts = make_parts(config, rank);
        EXPECT_TRUE(torch::equal(torch::rand({3}), next));
        const auto all = parts.joined();
        for (const auto& item : all->named_parameters()) {
          EXPECT_TRUE(torch::equal(item.value(), whole->named_parameters()[item.key()])) << item.key();
          EXPECT_FALSE(make_parts(config, rank).elsewhere()(item.key()));
          EXPECT_TRUE(make_parts(config, rank ^ 1).elsewhere()(item.key()));
          ++found;
        }
        std::size_t apart = 0;
        for (const auto& stage : parts.stages) apart += stage->size();
        EXPECT_EQ(all->size(), apart);
        EXPECT_TRUE(all->parameters()[0].is_same(parts.stages[0]->parameters()[0])) << "shared, not copied";
      }
      EXPECT_EQ(found, whole->parameters().size());
    }
  }
}

TEST(IsElsewhere, OnlyWhatIsOfTheModel) {
  const TrainingConfig config = checked(small("1f1b", 2));  // modules 0 to 14
  EXPECT_FALSE(make_parts(config, 0).elsewhere()("0.weight"));
  EXPECT_TRUE(make_parts(config, 1).elsewhere()("0.weight"));
  EXPECT_TRUE(make_parts(config, 0).elsewhere()("14.bias"));
  for (const char* name : {"15.weight", "", ".weight", "weight", "x.weight", "-1.weight", "14", "1x.weight",
                           "999999999.weight", "99999999999999999999999.weight", " 14.bias"})
    for (const Rank rank : {0, 1}) EXPECT_FALSE(make_parts(config, rank).elsewhere()(name)) << name;
}

TEST(CutOf, FollowsTheBalance) {
  TrainingConfig config = small("1f1b", 2);
  config.model = {.kind = model::ModelKind::cnn, .channels = {2, 3}, .hidden = 8, .image_side = 8};
  // Conv ReLU Pool, Conv ReLU Pool Flatten, Linear ReLU, Linear: 20, 57, 104 and 90 parameters.
  config = checked(config);
  EXPECT_THAT(cut_of(config, 2), ElementsAre(Range{0, 7}, Range{7, 10}));
  config.pipeline.balance = pipeline::Balance::parameters;
  EXPECT_THAT(cut_of(config, 3), ElementsAre(Range{0, 7}, Range{7, 9}, Range{9, 10}));
  config.pipeline.balance = pipeline::Balance::time;
  config.pipeline.module_seconds = {1, 1, 1, 1, 1, 1, 1, 9, 1, 20};
  EXPECT_THAT(cut_of(config, 2), ElementsAre(Range{0, 9}, Range{9, 10}));
  config.pipeline.module_seconds = {30, 1, 1, 1, 1, 1, 1, 9, 1, 20};
  EXPECT_THAT(cut_of(config, 2), ElementsAre(Range{0, 3}, Range{3, 10}));
}

TEST(MeasureModules, OneFigureAModule) {
  for (const auto data : {data::DataKind::synthetic, data::DataKind::regression}) {
    TrainingConfig config = small("1f1b", 2, 2);
    config.data = data;
    config = checked(config);
    const std::vector<double> seconds = measure_modules(config);
    EXPECT_THAT(seconds, SizeIs(15));
    for (const double one : seconds) EXPECT_GT(one, 0);
  }
}

}  // namespace
}  // namespace lockstep::train
