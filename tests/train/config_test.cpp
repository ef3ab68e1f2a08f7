#include "lockstep/training.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <functional>

#include "lockstep/error.h"
#include "lockstep/train/pipeline_config.h"

namespace lockstep::train {
namespace {

using testing::AllOf;
using testing::AnyOf;
using testing::DoubleEq;
using testing::Each;
using testing::HasSubstr;

TEST(Config, WhatWasLeftOpenIsFilledIn) {
  const TrainingConfig c = checked({});
  EXPECT_EQ(c.strategy, StrategyKind::ddp);
  EXPECT_EQ(c.ranks, 2);
  EXPECT_EQ(c.batch, 32);
  EXPECT_EQ(c.steps, 50);
  EXPECT_EQ(c.epochs, 0);
  EXPECT_EQ(checked({.strategy = StrategyKind::single}).ranks, 1);
  EXPECT_EQ(checked({.ranks = 3, .batch_per_rank = 5}).batch, 15);
}

TEST(Config, ImagesHaveEpochsAndDecideTheModelsEnds) {
  TrainingConfig c{.data = data::DataKind::fashion_mnist};
  c.model.dim = 784;
  c = checked(c);
  EXPECT_EQ(c.epochs, 1);
  EXPECT_EQ(c.steps, 0);
  EXPECT_EQ(c.model.outputs, 10);
  EXPECT_EQ(checked({.data = data::DataKind::regression}).model.outputs, 1);
}

TEST(Config, ATransformerHasTokens) {
  TrainingConfig c;
  c.model.kind = model::ModelKind::transformer;
  EXPECT_EQ(checked(c).data, data::DataKind::tokens);
  EXPECT_EQ(checked(c).lr, 1e-3);
  EXPECT_EQ(checked(c).describe_model(), "transformer 4x64, 4 heads, vocabulary 256, sequence 32");
  c.data = data::DataKind::tokens;
  c.model.transformer.tied = true;
  EXPECT_EQ(checked(c).describe_model(), "transformer 4x64, 4 heads, vocabulary 256, sequence 32, tied");
}

TEST(Config, APipelineHasAStageOnEachRank) {
  const TrainingConfig c = checked({.strategy = StrategyKind::pipeline, .ranks = 3});
  EXPECT_EQ(c.pipeline.schedule, "1f1b");
  EXPECT_EQ(c.pipeline.stages, 3);
  EXPECT_EQ(c.pipeline.microbatches, 8);
  EXPECT_EQ(c.pipeline.balance, pipeline::Balance::count);
  EXPECT_EQ(c.replicas(), 1);
  EXPECT_EQ(schedule_of(c).ranks, 3);
  EXPECT_EQ(schedule_of(c).microbatches, 8);
  EXPECT_EQ(checked({.strategy = StrategyKind::pipeline}).ranks, 2);
  EXPECT_EQ(checked({.strategy = StrategyKind::pipeline, .pipeline = {.stages = 5}}).ranks, 5);
  EXPECT_EQ(schedule_of(checked({.strategy = StrategyKind::pipeline, .pipeline = {.schedule = "interleaved"}})).stages,
            4);
}

TEST(Config, WhatWasCheckedCanBeCheckedAgain) {
  for (const auto& [strategy, name, help] : kStrategies) {
    const TrainingConfig once = checked({.strategy = strategy, .batch_per_rank = 5});
    const TrainingConfig twice = checked(once);
    EXPECT_EQ(twice.ranks, once.ranks) << name;
    EXPECT_EQ(twice.batch, once.batch) << name;
    EXPECT_EQ(twice.steps, once.steps) << name;
    EXPECT_EQ(twice.lr, once.lr) << name;
  }
  TrainingConfig images{.data = data::DataKind::fashion_mnist};
  images.model.dim = 784;
  images = checked(images);
  EXPECT_EQ(checked(images).epochs, images.epochs);
}

TEST(Config, SeveralPipelinesShareTheBatch) {
  const TrainingConfig c =
      checked({.strategy = StrategyKind::pipeline, .ranks = 6, .batch_per_rank = 5, .pipeline = {.stages = 2}});
  EXPECT_EQ(c.replicas(), 3);
  EXPECT_EQ(c.batch, 15);
  EXPECT_EQ(c.pipeline.microbatches, 5) << "no more than samples";
  EXPECT_EQ(checked({.strategy = StrategyKind::pipeline, .batch = 3}).pipeline.microbatches, 3);
  EXPECT_EQ(
      checked({.strategy = StrategyKind::pipeline, .ranks = 4, .bucket_mb = 1, .pipeline = {.stages = 2}}).bucket_mb,
      1);
}

TEST(Config, ByHandIsOneProcessThatMayBeBalanced) {
  EXPECT_EQ(checked({.strategy = StrategyKind::manual_pipeline}).ranks, 1);
  EXPECT_EQ(checked({.strategy = StrategyKind::manual_pipeline, .pipeline = {.balance = pipeline::Balance::parameters}})
                .pipeline.balance,
            pipeline::Balance::parameters);
}

// A schedule on the disk; gone at the end.
class ScheduleFile : public testing::Test {
 protected:
  ScheduleFile() : path_(testing::TempDir() + "lockstep_schedule_" + std::to_string(::getpid()) + ".csv") {}
  ~ScheduleFile() override { std::remove(path_.c_str()); }

  TrainingConfig with(const std::string& text) {
    std::ofstream(path_) << text;
    return {.strategy = StrategyKind::pipeline, .pipeline = {.schedule = path_}};
  }
  static std::string error_of(const TrainingConfig& config) {
    try {
      static_cast<void>(checked(config));
    } catch (const UsageError& error) {
      return error.what();
    }
    return "none";
  }

  const std::string path_;
  const std::string good_ = "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n";
};

TEST_F(ScheduleFile, SaysHowManyStagesAndMicrobatches) {
  const TrainingConfig c = checked(with(good_));
  EXPECT_EQ(c.ranks, 2);
  EXPECT_EQ(c.pipeline.stages, 2);
  EXPECT_EQ(c.pipeline.microbatches, 2);
  EXPECT_EQ(schedule_of(c).actions[1].size(), 4U);
  TrainingConfig twice = with(good_);
  twice.ranks = 4;
  EXPECT_EQ(checked(twice).replicas(), 2);
}

TEST_F(ScheduleFile, AndFlagsMustSayTheSame) {
  TrainingConfig c = with(good_);
  c.pipeline.stages = 3;
  EXPECT_THAT(error_of(c), AllOf(HasSubstr("`stages` is 3"), HasSubstr("has 2 ranks"), HasSubstr("try: `stages` 2")));
  c = with(good_);
  c.pipeline.microbatches = 4;
  EXPECT_THAT(error_of(c), AllOf(HasSubstr("`microbatches` is 4"), HasSubstr("try: `microbatches` 2")));
  c = with(good_);
  c.pipeline.virtual_stages = 2;
  EXPECT_THAT(error_of(c), HasSubstr("`virtual_stages` is 2"));
  c = with(good_);
  c.ranks = 3;
  EXPECT_THAT(error_of(c), HasSubstr("3 ranks are no whole number of pipelines of 2 stages"));
  c = with(good_);
  c.batch = 1;
  EXPECT_THAT(error_of(c), HasSubstr("2 microbatches of a batch of 1 samples"));
}

TEST_F(ScheduleFile, ThatCannotRunIsRefusedBeforeARankStarts) {
  EXPECT_THAT(error_of(with("0F0,0B0\n1F0,1X0\n")), AllOf(HasSubstr(path_ + ": line 2, column 2"), HasSubstr("'1X0'")));
  EXPECT_THAT(error_of(with("0F0,0B0,0F1,0B1\n1F1,1B1,1F0,1B0\n")), HasSubstr("can't run: deadlock: rank 0"));
  EXPECT_THAT(error_of(with("0F0,0B0\n1F0\n")), HasSubstr("can't run"));
  EXPECT_THAT(error_of(with("")), HasSubstr("no action"));
}

struct Bad {
  const char* name;
  std::function<void(TrainingConfig&)> harm;
  const char* says;
};
std::ostream& operator<<(std::ostream& out, const Bad& bad) { return out << bad.name; }

class BadConfig : public testing::TestWithParam<Bad> {};

TEST_P(BadConfig, IsRefusedWithTheValueAndWhatToTry) {
  TrainingConfig c;
  try {
    GetParam().harm(c);
    static_cast<void>(checked(c));
    FAIL() << "was not refused";
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(), HasSubstr(GetParam().says));
    EXPECT_THAT(error.what(), AnyOf(HasSubstr("try: "), HasSubstr("one of")));
    EXPECT_EQ(error.exit_code(), kExitUsage);
  }
}

using C = TrainingConfig;
std::function<void(C&)> in_a_pipeline(std::function<void(C&)> harm) {
  return [harm](C& c) {
    c.strategy = StrategyKind::pipeline;
    harm(c);
  };
}

INSTANTIATE_TEST_SUITE_P(
    , BadConfig,
    testing::Values(
        Bad{"strategy", [](C& c) { c.strategy = kStrategies.parse("dpp"); }, "no strategy 'dpp'; try: ddp"},
        Bad{"model", [](C& c) { c.model.kind = model::kModels.parse("cmn"); }, "no model 'cmn'; try: cnn"},
        Bad{"data", [](C& c) { c.data = data::kDataKinds.parse("fashion_mnist"); }, "try: fashion-mnist"},
        Bad{"optimizer", [](C& c) { c.optimizer = kOptimizers.parse("adamm"); }, "try: adam"},
        Bad{"transport", [](C& c) { c.transport = parse_transport("tpc"); }, "try: tcp"},
        Bad{"algorithm", [](C& c) { c.algorithm = parse_algorithm("--algorithm", "round"); }, "round"},
        Bad{"tail", [](C& c) { c.remainder = data::kRemainders.parse("pda"); }, "try: pad"},
        Bad{"ranks", [](C& c) { c.ranks = -1; }, "`ranks` is -1"},
        Bad{"one_process",
            [](C& c) {
              c.strategy = StrategyKind::single;
              c.ranks = 2;
            },
            "single is one process, and `ranks` is 2"},
        Bad{"batch_smaller_than_ranks",
            [](C& c) {
              c.ranks = 4;
              c.batch = 3;
            },
            "a batch of 3 is smaller than the 4 ranks"},
        Bad{"both_batches",
            [](C& c) {
              c.batch = 4;
              c.batch_per_rank = 2;
            },
            "both `batch` 4 and `batch_per_rank` 2"},
        Bad{"overflow", [](C& c) { c.batch_per_rank = std::int64_t{1} << 62; }, "`batch_per_rank`"},
        Bad{"too_many_microbatches", [](C& c) { c.accumulate = 17; }, "`accumulate` 16"},
        Bad{"hooks_accumulate",
            [](C& c) {
              c.strategy = StrategyKind::hooks;
              c.accumulate = 2;
            },
            "hooks can't accumulate"},
        Bad{"steps_and_epochs",
            [](C& c) {
              c.data = data::DataKind::mnist;
              c.steps = c.epochs = 1;
            },
            "both `steps` 1 and `epochs` 1"},
        Bad{"epochs_of_synthetic", [](C& c) { c.epochs = 2; }, "`epochs` 2, but synthetic data is one batch"},
        Bad{"cnn_regression",
            [](C& c) {
              c.model.kind = model::ModelKind::cnn;
              c.data = data::DataKind::regression;
            },
            "`model` mlp"},
        Bad{"transformer_images",
            [](C& c) {
              c.model.kind = model::ModelKind::transformer;
              c.data = data::DataKind::mnist;
            },
            "a transformer takes tokens, and mnist has none; try: `data` tokens"},
        Bad{"mlp_tokens", [](C& c) { c.data = data::DataKind::tokens; },
            "only a transformer takes tokens, and `model` is mlp; try: `model` transformer"},
        Bad{"epochs_of_tokens",
            [](C& c) {
              c.model.kind = model::ModelKind::transformer;
              c.epochs = 2;
            },
            "`epochs` 2, but tokens data is one batch, used at every step; try: `steps` 100"},
        Bad{"batch_of_tokens",
            [](C& c) {
              c.model.kind = model::ModelKind::transformer;
              c.model.transformer.sequence = 1 << 30;
              c.batch = 1 << 20;
            },
            "a smaller `batch`"},
        Bad{"dim_of_images", [](C& c) { c.data = data::DataKind::mnist; },
            "`dim` is 128, and an image of mnist has 784 pixels"},
        Bad{"buckets_of_naive",
            [](C& c) {
              c.strategy = StrategyKind::naive;
              c.bucket_mb = 1;
            },
            "naive has no buckets"},
        Bad{"bucket_size", [](C& c) { c.bucket_mb = 0; }, "`bucket_mb` is 0"},
        Bad{"flat_hooks",
            [](C& c) {
              c.strategy = StrategyKind::hooks;
              c.flat = true;
            },
            "`strategy` ddp with `flat`"},
        Bad{"fused_ddp", [](C& c) { c.fused_update = true; }, "`strategy` sharded"},
        Bad{"fused_rmsprop",
            [](C& c) {
              c.strategy = StrategyKind::sharded;
              c.fused_update = true;
              c.optimizer = OptimizerKind::rmsprop;
            },
            "rmsprop is libtorch's own"},
        Bad{"sharded_tcp",
            [](C& c) {
              c.strategy = StrategyKind::sharded;
              c.transport = TransportKind::tcp;
            },
            "`transport` shm"},
        Bad{"schedule", in_a_pipeline([](C& c) { c.pipeline.schedule = "1f2b"; }), "no schedule '1f2b'; try: 1f1b"},
        Bad{"schedule_file", in_a_pipeline([](C& c) { c.pipeline.schedule = "/no/such.csv"; }), "/no/such.csv"},
        Bad{"ranks_of_stages", in_a_pipeline([](C& c) {
              c.ranks = 7;
              c.pipeline.stages = 3;
            }),
            "7 ranks are no whole number of pipelines of 3 stages; try: `ranks` 6"},
        Bad{"fewer_ranks_than_stages", in_a_pipeline([](C& c) {
              c.ranks = 2;
              c.pipeline.stages = 3;
            }),
            "try: `ranks` 3"},
        Bad{"microbatches", in_a_pipeline([](C& c) { c.pipeline.microbatches = 33; }),
            "33 microbatches of a batch of 32 samples; try: `microbatches` 32, or `batch` 33"},
        Bad{"microbatches_of_pipelines", in_a_pipeline([](C& c) {
              c.ranks = 6;
              c.pipeline.stages = 2;
              c.pipeline.microbatches = 11;
            }),
            "11 microbatches of the 10 samples that each of 3 pipelines has; try: `microbatches` 10, or `batch` 33"},
        Bad{"batch_smaller_than_pipelines", in_a_pipeline([](C& c) {
              c.ranks = 4;
              c.pipeline.stages = 1;
              c.batch = 3;
            }),
            "a batch of 3 is smaller than the 4 pipelines"},
        Bad{"virtual_stages", in_a_pipeline([](C& c) { c.pipeline.virtual_stages = 2; }),
            "1f1b has one stage per rank, not 2"},
        Bad{"balance", in_a_pipeline([](C& c) { c.pipeline.balance = pipeline::kBalances.parse("tiem"); }),
            "no balance 'tiem'; try: time"},
        Bad{"accumulate", in_a_pipeline([](C& c) { c.accumulate = 2; }),
            "`accumulate` 2: a pipeline adds up its microbatches"},
        Bad{"emulated_pipelines", in_a_pipeline([](C& c) {
              c.ranks = 4;
              c.pipeline.stages = 2;
              c.pipeline.emulate = {1, 1, 1};
            }),
            "no gradients for 2 pipelines to average; try: `ranks` 2"},
        Bad{"emulated_weights", in_a_pipeline([](C& c) {
              c.save = "/tmp/w";
              c.pipeline.emulate = {1, 1, 1};
            }),
            "emulated compute trains nothing"},
        Bad{"buckets_of_one_pipeline", in_a_pipeline([](C& c) { c.bucket_mb = 1; }), "pipeline has no buckets"},
        Bad{"schedule_of_ddp", [](C& c) { c.pipeline.schedule = "1f1b"; },
            "ddp has no pipeline, and `schedule` is of one"},
        Bad{"stages_of_ddp", [](C& c) { c.pipeline.stages = 2; }, "`stages` is of one; try: `strategy` pipeline"},
        Bad{"microbatches_of_ddp", [](C& c) { c.pipeline.microbatches = 2; }, "`microbatches` is of one"},
        Bad{"virtual_stages_of_ddp", [](C& c) { c.pipeline.virtual_stages = 2; }, "`virtual_stages` is of one"},
        Bad{"balance_of_ddp", [](C& c) { c.pipeline.balance = pipeline::Balance::time; }, "`balance` is of one"},
        Bad{"recompute_of_ddp", [](C& c) { c.pipeline.recompute = true; }, "`recompute` is of one"},
        Bad{"emulated_ddp",
            [](C& c) {
              c.pipeline.emulate = {1, 1, 1};
            },
            "`emulate` is of one"},
        Bad{"ranks_by_hand",
            [](C& c) {
              c.strategy = StrategyKind::manual_pipeline;
              c.ranks = 2;
            },
            "manual-pipeline is one process, and `ranks` is 2; try: `ranks` 1, or `strategy` pipeline"},
        Bad{"microbatches_by_hand",
            [](C& c) {
              c.strategy = StrategyKind::manual_pipeline;
              c.pipeline.microbatches = 2;
            },
            "manual-pipeline has two stages and one microbatch, and no `microbatches`"},
        Bad{"layer_wait", [](C& c) { c.layer_wait = -1; }, "waits for -1 s"},
        Bad{"layer_wait_of_a_pipeline",
            [](C& c) {
              c.strategy = StrategyKind::pipeline;
              c.layer_wait = 1e-3;
            },
            "layers do not wait with the strategy pipeline; try: `emulate`"},
        Bad{"lr", [](C& c) { c.lr = 0; }, "`lr` is 0"},
        Bad{"save_nowhere", [](C& c) { c.save = "/no/such/folder/w"; }, "there is no folder /no/such/folder"},
        Bad{"save_to_a_folder", [](C& c) { c.save = "/tmp"; }, "`save` /tmp is a folder"},
        Bad{"load_nothing", [](C& c) { c.load = "/no/such/file"; }, "`load` /no/such/file"}),
    [](const auto& bad) { return std::string(bad.param.name); });

// The same work for a rank, however many stages it has.
TEST(PipelineConfig, EmulatedTimesAreThoseOfARankAndItsStagesShareThem) {
  for (const std::string& name : pipeline::schedule_names()) {
    const pipeline::Schedule schedule = pipeline::make_schedule(name, 3, 4);
    std::vector<double> forward(3), input(3), weight(3);
    const auto times = emulated_times({6, 12, 24}, schedule);
    ASSERT_EQ(times.size(), schedule.rank_of_stage.size());
    for (std::size_t stage = 0; stage < times.size(); ++stage) {
      const auto rank = static_cast<std::size_t>(schedule.rank_of_stage[stage]);
      forward[rank] += times[stage].forward;
      input[rank] += times[stage].input;
      weight[rank] += times[stage].weight;
    }
    EXPECT_THAT(forward, Each(DoubleEq(6))) << name;
    EXPECT_THAT(input, Each(DoubleEq(12))) << name;
    EXPECT_THAT(weight, Each(DoubleEq(24))) << name;
  }
}

TEST(PipelineConfig, WhatOnlyRanksWouldHaveFoundIsSaidBefore) {
  const auto refused = [](auto&& change, const char* words) {
    TrainingConfig config;
    config.strategy = StrategyKind::pipeline;
    config.ranks = 2;
    change(config);
    EXPECT_THAT([&] { (void)checked(config); }, ThrowsMessage<UsageError>(HasSubstr(words)));
  };
  refused([](auto& c) { c.ranks = 18; }, "18 stages for a network of 17 layers");
  refused([](auto& c) { c.model = {.kind = model::ModelKind::cnn}, c.ranks = 5; },
          "5 stages for a network of 4 layers");
  refused([](auto& c) { c.model = {.kind = model::ModelKind::transformer}, c.ranks = 7; },
          "7 stages for a network of 6 layers");
  refused([](auto& c) { c.batch = c.pipeline.microbatches = 20000; }, "need 120000 tags");
  refused([](auto& c) { c.pipeline.emulate.emplace(), c.pipeline.recompute = true; }, "nothing to compute again");
  refused([](auto& c) { c.pipeline.schedule = "/dev/zero.csv/../zero"; }, "there is no schedule");
}

}  // namespace
}  // namespace lockstep::train
