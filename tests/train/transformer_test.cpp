// Training a transformer, on ranks that are threads: every strategy and every cut makes the single process's losses and
// weights.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "lockstep/communicator.h"
#include "lockstep/data/chain.h"
#include "lockstep/error.h"
#include "lockstep/model.h"
#include "lockstep/pipeline.h"
#include "lockstep/train/criterion.h"
#include "lockstep/train/pipeline_strategy.h"
#include "lockstep/train/progress.h"
#include "lockstep/training.h"
#include "lockstep/weights.h"
#include "numerics.h"

namespace lockstep::train {
namespace {

namespace fs = std::filesystem;
using pipeline::Balance;
using pipeline::Range;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

// A large vocabulary for its size: the embedding and the output have most of the parameters.
TrainingConfig transformer(StrategyKind strategy, int ranks, bool tied = false) {
  TrainingConfig config{
      .strategy = strategy, .ranks = ranks, .batch = 13, .steps = 12, .optimizer = OptimizerKind::momentum, .lr = 0.05};
  config.model.kind = model::ModelKind::transformer;
  config.model.transformer = {.dim = 12, .depth = 3, .heads = 3, .vocabulary = 300, .sequence = 6, .tied = tied};
  return config;
}

TrainingConfig pipelined(const std::string& schedule, int stages, int replicas = 1, bool tied = false) {
  TrainingConfig config = transformer(StrategyKind::pipeline, stages * replicas, tied);
  config.pipeline.schedule = schedule;
  config.pipeline.stages = stages;
  config.pipeline.microbatches = 3;
  return config;
}

struct Outcome {
  Result result;
  weights::NamedTensors weights;
};

Outcome train(TrainingConfig config) {
  const fs::path file = fs::temp_directory_path() / fmt::format("lockstep-transformer-{}", ::getpid());
  config.save = file.string();
  config = checked(config);
  Outcome outcome;
  thread_world(config.ranks, [&](Communicator& comm) {
    Training training(config, comm.rank(), comm.size());
    Progress silent(-1, Progress::Style::plain, training.steps());
    const Result mine = training.run(comm, silent);
    if (comm.rank() == 0) outcome.result = mine;
  });
  outcome.weights = weights::load_tensors(file.string()).tensors;
  fs::remove(file);
  return outcome;
}

void expect_same(const Outcome& got, const Outcome& want) {
  ASSERT_EQ(got.result.losses.size(), want.result.losses.size());
  for (std::size_t i = 0; i < want.result.losses.size(); ++i)
    EXPECT_TRUE(test::close(got.result.losses[i], want.result.losses[i])) << "step " << i;
  EXPECT_TRUE(got.result.digests_agree());
  EXPECT_EQ(got.result.parameters, want.result.parameters);
  EXPECT_EQ(got.result.gradient_bytes, want.result.gradient_bytes);
  ASSERT_EQ(got.weights.size(), want.weights.size());
  for (std::size_t i = 0; i < want.weights.size(); ++i) {
    EXPECT_EQ(got.weights[i].first, want.weights[i].first);
    EXPECT_TRUE(test::close(got.weights[i].second, want.weights[i].second)) << want.weights[i].first;
  }
}

TEST(TransformerTraining, EveryStrategyMakesTheSingleProcesssLossesAndWeights) {
  for (const bool tied : {false, true}) {
    const Outcome single = train(transformer(StrategyKind::single, 1, tied));
    EXPECT_LT(single.result.losses.back(), 0.9 * single.result.losses.front());
    expect_same(train(transformer(StrategyKind::manual, 1, tied)), single);
    for (const auto strategy : {StrategyKind::naive, StrategyKind::hooks, StrategyKind::ddp, StrategyKind::sharded})
      for (const int ranks : {2, 3}) {  // 13 rows: ranks have different numbers
        SCOPED_TRACE(fmt::format("{} on {}{}", name_of(strategy), ranks, tied ? ", tied" : ""));
        expect_same(train(transformer(strategy, ranks, tied)), single);
      }
    TrainingConfig flat = transformer(StrategyKind::ddp, 2, tied);
    flat.flat = true;
    flat.accumulate = 3;
    flat.bucket_mb = 0.01;
    expect_same(train(flat), single);
  }
}

TEST(TransformerTraining, EveryScheduleMakesThem) {
  const Outcome single = train(transformer(StrategyKind::single, 1));
  for (const std::string& schedule : pipeline::schedule_names()) {
    SCOPED_TRACE(schedule);
    expect_same(train(pipelined(schedule, 2)), single);
  }
  TrainingConfig by_hand = transformer(StrategyKind::manual_pipeline, 1);
  expect_same(train(by_hand), single);
}

TEST(TransformerTraining, EveryCutMakesThem) {
  const Outcome single = train(transformer(StrategyKind::single, 1));
  for (const auto balance : {Balance::count, Balance::parameters})
    for (const auto& [stages, replicas] : {std::pair{2, 1}, {3, 1}, {5, 1}, {2, 2}, {3, 2}}) {
      SCOPED_TRACE(fmt::format("{}, {} x {}", name_of(balance), replicas, stages));
      TrainingConfig config = pipelined("1f1b", stages, replicas);
      config.pipeline.balance = balance;
      expect_same(train(config), single);
    }
  TrainingConfig recomputing = pipelined("gpipe", 3);
  recomputing.pipeline.recompute = true;
  expect_same(train(recomputing), single);
}

// The embedding has 3672 parameters, a block 1884, the output 3624.
TEST(TransformerTraining, ALargeEmbeddingIsAStageOfItsOwn) {
  TrainingConfig config = checked(pipelined("1f1b", 3));
  EXPECT_THAT(cut_of(config, 3), ElementsAre(Range{0, 2}, Range{2, 4}, Range{4, 5}));
  config.pipeline.balance = Balance::parameters;
  EXPECT_THAT(cut_of(config, 3), ElementsAre(Range{0, 1}, Range{1, 3}, Range{3, 5}));
  EXPECT_THAT(cut_of(config, 2), ElementsAre(Range{0, 2}, Range{2, 5}));
}

TEST(TransformerTraining, EveryModuleHasATime) {
  TrainingConfig config = checked(pipelined("1f1b", 2));
  for (const bool tied : {false, true}) {
    config.model.transformer.tied = tied;
    EXPECT_EQ(measure_modules(config).size(), 5U);
  }
}

TEST(TransformerTraining, TiedWeightsCanBeInOneStage) {
  const Outcome single = train(transformer(StrategyKind::single, 1, true));
  for (const char* schedule : {"1f1b", "zb-h1"})
    for (const int replicas : {1, 2}) {
      SCOPED_TRACE(fmt::format("{} x {}", replicas, schedule));
      expect_same(train(pipelined(schedule, 1, replicas, true)), single);
    }
}

TEST(TransformerTraining, TiedWeightsInTwoStagesAreRefusedByName) {
  const auto says = [](const TrainingConfig& config) -> std::string {
    try {
      static_cast<void>(checked(config));
    } catch (const UsageError& error) {
      return error.what();
    }
    return "nothing";
  };
  EXPECT_THAT(
      says(pipelined("1f1b", 2, 1, true)),
      AllOf(HasSubstr("with `tied`, the embedding (0.token.weight) and the output (4.weight) are one parameter, "
                      "and 2 stages can't share it"),
            HasSubstr("try: without `tied`, or `stages` 1")));
  EXPECT_THAT(says(pipelined("interleaved", 1, 1, true)), HasSubstr("try: without `tied`, or `schedule` 1f1b"));
  EXPECT_THAT(says(transformer(StrategyKind::manual_pipeline, 1, true)),
              AllOf(HasSubstr("2 stages"), HasSubstr("`strategy` single")));
}

// The same for programs that use Pipeline itself, with a whole model and with layers that are made one by one.
TEST(TransformerTraining, TiedWeightsInTwoStagesAreRefusedByAPipelineToo) {
  const model::TransformerSizes sizes = transformer(StrategyKind::single, 1, true).model.transformer;
  const auto expect_refused = [](const std::function<void(Communicator&)>& make) {
    thread_world(2, [&](Communicator& comm) {
      try {
        make(comm);
        ADD_FAILURE() << "nothing was refused";
      } catch (const UsageError& error) {
        EXPECT_THAT(error.what(), AllOf(HasSubstr("0.token.weight (stage 0) and 4.weight (stage 1) are one parameter"),
                                        HasSubstr("try: fewer stages"), HasSubstr("weights that are not tied")));
      }
    });
  };
  expect_refused([&](Communicator& comm) { Pipeline(model::Transformer(sizes), comm); });
  expect_refused([&](Communicator& comm) { Pipeline(model::transformer_layers(sizes), comm); });
}

TEST(TransformerTraining, LearnsTheChain) {
  TrainingConfig config{.strategy = StrategyKind::single, .steps = 120, .lr = 3e-3};
  config.model.kind = model::ModelKind::transformer;
  config.model.transformer = {.dim = 32, .depth = 2, .heads = 2, .vocabulary = 16, .sequence = 32};
  const std::vector<double> losses = train(config).result.losses;
  EXPECT_NEAR(losses.front(), std::log(16), 0.5) << "it knows nothing yet";
  EXPECT_LT(losses.back(), 1.25 * data::chain_entropy(16));
}

TEST(MeanLoss, IsTheMeanOverAllPositions) {
  const torch::Tensor output = torch::randn({2, 3, 5}), targets = torch::randint(0, 5, {2, 3}, torch::kInt64);
  double sum = 0;
  for (std::int64_t row = 0; row < 2; ++row)
    for (std::int64_t position = 0; position < 3; ++position)
      sum -= output[row][position].log_softmax(0)[targets[row][position]].item<double>();
  EXPECT_TRUE(test::close(mean_loss(output, targets).item<double>(), sum / 6));
}

}  // namespace
}  // namespace lockstep::train
