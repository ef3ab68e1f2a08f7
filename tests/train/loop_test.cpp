// The loop on ranks that are threads: every strategy makes the single process's losses and weights.
#include "lockstep/training.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <mutex>

#include "lockstep/communicator.h"
#include "lockstep/data.h"
#include "lockstep/error.h"
#include "lockstep/train/feed.h"
#include "lockstep/train/optimizer.h"
#include "lockstep/train/progress.h"
#include "lockstep/weights/digest.h"
#include "numerics.h"

namespace lockstep::train {
namespace {

using weights::digest;

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

TrainingConfig small(StrategyKind strategy, int ranks) {
  TrainingConfig config{.strategy = strategy, .ranks = ranks, .batch = 13, .steps = 12, .lr = 1e-2};
  config.model.dim = 24;
  config.model.depth = 3;
  return config;
}

void expect_same_losses(const Result& a, const Result& b, const std::string& what) {
  ASSERT_EQ(a.losses.size(), b.losses.size()) << what;
  for (std::size_t i = 0; i < a.losses.size(); ++i)
    EXPECT_TRUE(test::close(a.losses[i], b.losses[i])) << what << ", step " << i;
  EXPECT_TRUE(b.digests_agree()) << what;
}

TEST(Loop, EveryStrategyMakesTheSingleProcesssLosses) {
  const Result single = run(small(StrategyKind::single, 1));
  EXPECT_LT(single.losses.back(), single.losses.front());
  expect_same_losses(single, run(small(StrategyKind::manual, 1)), "manual");
  for (const auto strategy : {StrategyKind::naive, StrategyKind::hooks, StrategyKind::ddp, StrategyKind::sharded})
    for (const int ranks : {1, 2, 3, 4}) {  // 13 rows: ranks have different numbers
      const Result result = run(small(strategy, ranks));
      expect_same_losses(single, result, fmt::format("{} on {}", name_of(strategy), ranks));
      EXPECT_EQ(result.digests.size(), static_cast<std::size_t>(ranks));
    }
}

TEST(Loop, MicrobatchesAddUpToTheBatch) {
  const Result single = run(small(StrategyKind::single, 1));
  for (const auto strategy : {StrategyKind::single, StrategyKind::naive, StrategyKind::ddp, StrategyKind::sharded}) {
    TrainingConfig config = small(strategy, strategy == StrategyKind::single ? 1 : 2);
    config.accumulate = 3;
    expect_same_losses(single, run(config), name_of(strategy));
  }
}

TEST(Loop, TrainingsThatTakeTurnsGiveTheSameResultsAsAlone) {
  std::vector<TrainingConfig> configs;
  for (const auto strategy : {StrategyKind::naive, StrategyKind::hooks, StrategyKind::ddp, StrategyKind::sharded})
    configs.push_back(checked(small(strategy, 3)));
  std::vector<Result> results;
  thread_world(3, [&](Communicator& comm) {
    std::vector<Training> trainings;
    for (const TrainingConfig& config : configs) trainings.emplace_back(config, comm.rank(), comm.size());
    auto mine = Training::run_in_turns(trainings, comm);
    if (comm.rank() == 0) results = std::move(mine);
  });
  ASSERT_EQ(results.size(), configs.size());
  for (std::size_t i = 0; i < configs.size(); ++i) {
    const Result alone = run(configs[i]);
    EXPECT_EQ(results[i].losses, alone.losses) << name_of(configs[i].strategy);
    EXPECT_EQ(results[i].digests, alone.digests) << name_of(configs[i].strategy);
    EXPECT_EQ(results[i].steps, alone.steps);
    EXPECT_GT(results[i].seconds, 0);
  }
}

TEST(Loop, TrainingsOfDifferentLengthsCannotTakeTurns) {
  const TrainingConfig longer = checked(small(StrategyKind::ddp, 1));
  TrainingConfig shorter = longer;
  shorter.steps = 3;
  thread_world(1, [&](Communicator& comm) {
    std::vector<Training> trainings;
    for (const TrainingConfig& config : {longer, shorter}) trainings.emplace_back(config, 0, 1);
    EXPECT_THROW(Training::run_in_turns(trainings, comm), UsageError);
  });
}

TEST(Loop, OnlyAMeasuredBackwardIsRecorded) {
  TrainingConfig config = small(StrategyKind::hooks, 1);
  config.steps = 4;
  config.warmup = 3;
  const Result result = run(config);
  ASSERT_TRUE(result.backward);
  double travelled = 0;
  for (const auto& travel : result.backward->travels) travelled += travel.ended - travel.began;
  EXPECT_TRUE(test::close(travelled, result.phases.communication)) << travelled << ' ' << result.phases.communication;
  EXPECT_FALSE(run(small(StrategyKind::ddp, 1)).backward) << "nothing travels";
}

TEST(Loop, ABackwardIsRecordedGradientByGradientOrBucketByBucket) {
  EXPECT_FALSE(run(small(StrategyKind::naive, 2)).backward);
  const Result hooks = run(small(StrategyKind::hooks, 2));
  ASSERT_TRUE(hooks.backward);
  ASSERT_EQ(hooks.backward->travels.size(), 8U);  // weight and bias of 3 layers and of the last one
  EXPECT_EQ(hooks.backward->travels.back().name.substr(0, 2), "0.") << "the first layer comes last";
  EXPECT_NE(hooks.backward->table.find("0.weight"), std::string::npos);
  std::size_t bytes = 0;
  for (const auto& travel : hooks.backward->travels) {
    bytes += travel.bytes;
    EXPECT_LE(travel.ready, travel.began) << travel.name;
    EXPECT_LE(travel.began, travel.ended) << travel.name;
  }
  EXPECT_EQ(bytes, hooks.gradient_bytes);

  TrainingConfig config = small(StrategyKind::ddp, 2);
  config.bucket_mb = 1.0 / (1 << 20);  // a bucket for each gradient
  const Result ddp = run(config);
  ASSERT_TRUE(ddp.backward);
  EXPECT_EQ(ddp.backward->travels.size(), 8U);
  EXPECT_EQ(ddp.backward->travels.front().name, "");
  EXPECT_LE(ddp.phases.overlapped, ddp.phases.communication);
}

TEST(Loop, ALayerThatWaitsMakesBackwardLonger) {
  TrainingConfig config = small(StrategyKind::hooks, 2);
  config.layer_wait = 2e-3;
  const Result result = run(config);
  EXPECT_GE(result.phases.backward, 4 * config.layer_wait);  // 4 layers have a weight
  expect_same_losses(run(small(StrategyKind::single, 1)), result, "waiting");
}

TEST(Loop, RegressionLearns) {
  TrainingConfig config = small(StrategyKind::ddp, 2);
  config.data = data::DataKind::regression;
  config.steps = 60;
  const Result result = run(config);
  EXPECT_LT(result.losses.back(), 0.5 * result.losses.front());
}

TEST(Loop, AnotherSeedIsAnotherRun) {
  TrainingConfig config = small(StrategyKind::single, 1);
  const Result first = run(config);
  EXPECT_EQ(first.digests, run(config).digests);
  config.seed = 43;
  EXPECT_NE(first.digests, run(config).digests);
}

TEST(Cut, CoversTheRowsOnceAndHasNoEmptyPiece) {
  const data::Batch batch{.inputs = torch::arange(7), .targets = torch::arange(7), .whole = 21};
  for (const std::int64_t pieces : {1, 2, 3, 7, 9}) {
    std::vector<torch::Tensor> rows;
    double share = 0;
    for (const data::Batch& piece : cut(batch, pieces)) {
      EXPECT_GT(piece.rows(), 0);
      share += piece.share();
      rows.push_back(piece.inputs);
    }
    EXPECT_EQ(rows.size(), static_cast<std::size_t>(std::min<std::int64_t>(pieces, 7)));
    EXPECT_TRUE(torch::equal(torch::cat(rows), batch.inputs));
    EXPECT_NEAR(share, batch.share(), 1e-12);
  }
  const data::Batch none{.inputs = torch::zeros({0, 3}), .targets = torch::zeros({0}), .whole = 5};
  EXPECT_EQ(cut(none, 4).size(), 1U);
}

TEST(Training, UsesTheTransportTheAlgorithmAndTheTraceOfItsConfiguration) {
  const auto file = std::filesystem::temp_directory_path() / fmt::format("lockstep-{}.json", ::getpid());
  TrainingConfig config;
  config.ranks = 3;
  config.model.dim = 8;
  config.model.depth = 2;
  config.steps = 2;
  config.transport = TransportKind::tcp;
  config.algorithm = Algorithm::ring;
  config.trace = file.string();
  config = checked(config);
  thread_world(
      3,
      [&](Communicator& comm) {
        EXPECT_EQ(comm.transport(), "tcp");
        EXPECT_EQ(comm.choice(Op::all_reduce, 8, DType::float32), Algorithm::ring);
        Training training(config, comm.rank(), comm.size());
        Progress silent(-1, Progress::Style::plain, training.steps());
        const Result result = training.run(comm, silent);
        EXPECT_EQ(result.transport, "tcp");
        EXPECT_GT(comm.traffic().messages, 0U);  // `direct`, which would be chosen otherwise, sends none
      },
      transport_options(config), comm_options(config));
  std::ifstream stream(file);
  const std::string trace{std::istreambuf_iterator<char>(stream), {}};
  EXPECT_NE(trace.find("\"ring\""), std::string::npos);
  EXPECT_EQ(trace.find("\"direct\""), std::string::npos);
  std::filesystem::remove(file);
}

// What the configuration leaves open is what the environment says.
TEST(Training, TheEnvironmentFillsInWhatIsLeftOpen) {
  ::setenv("LOCKSTEP_TRANSPORT", "tcp", 1);
  ::setenv("LOCKSTEP_ALGORITHM", "tree", 1);
  TrainingConfig config;
  EXPECT_EQ(transport_options(config).kind, TransportKind::tcp);
  EXPECT_EQ(comm_options(config).algorithm, Algorithm::tree);
  config.transport = TransportKind::shm;
  config.algorithm = Algorithm::ring;
  EXPECT_EQ(transport_options(config).kind, TransportKind::shm);
  EXPECT_EQ(comm_options(config).algorithm, Algorithm::ring);
  ::unsetenv("LOCKSTEP_TRANSPORT");
  ::unsetenv("LOCKSTEP_ALGORITHM");
}

TEST(Digest, IsSha256OverTheElementsInOrder) {
  EXPECT_EQ(digest({}), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  const torch::Tensor abc = torch::tensor({97, 98, 99}, torch::kByte);
  EXPECT_EQ(digest({abc}), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(digest({abc.narrow(0, 0, 1), abc.narrow(0, 1, 2)}), digest({abc}));
  EXPECT_NE(digest({abc.flip(0)}), digest({abc}));
  const torch::Tensor wide = torch::arange(6).reshape({2, 3});
  EXPECT_EQ(digest({wide.t()}), digest({wide.t().contiguous()}));
}

TEST(Optimizer, EveryNameMakesAStepAndUnknownOnesAreRefused) {
  for (const auto& [kind, name, help] : kOptimizers) {
    torch::Tensor weight = torch::ones({3}, torch::requires_grad());
    const auto optimizer = make_optimizer(kind, 0.1, {weight});
    weight.sum().backward();
    optimizer->step();
    EXPECT_TRUE((weight < 1).all().item<bool>()) << name;
  }
  EXPECT_THROW(kOptimizers.parse("adan"), UsageError);
}

}  // namespace
}  // namespace lockstep::train
