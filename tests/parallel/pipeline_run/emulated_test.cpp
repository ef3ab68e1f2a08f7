// Stages that wait: real shapes and times, no arithmetic.
#include "lockstep/parallel/pipeline/run/emulated.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "lockstep/base/clock.h"
#include "lockstep/error.h"
#include "nets.h"

namespace lockstep::pipeline {
namespace {

using namespace test;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

constexpr Times kTimes{.forward = 0.004, .input = 0.006, .weight = 0.010};

double seconds_of(const std::function<void()>& body) {
  const auto began = Clock::now();
  body();
  return seconds_since(began);
}

Sequential narrowing() { return Sequential(torch::nn::Linear(5, 7), torch::nn::ReLU(), torch::nn::Linear(7, 3)); }

TEST(Emulated, TakesItsTimes) {
  EmulatedStage stage(narrowing(), kTimes, false);
  const Tensor input = torch::ones({2, 5});
  EXPECT_GE(seconds_of([&] { stage.forward(0, input, Backward::whole, {}); }), kTimes.forward);
  EXPECT_GE(seconds_of([&] { stage.backward(0, {}); }), kTimes.input + kTimes.weight);
  EXPECT_GE(seconds_of([&] { stage.forward(1, input, Backward::split, {}); }), kTimes.forward);
  EXPECT_GE(seconds_of([&] { stage.input_gradient(1, {}); }), kTimes.input);
  EXPECT_GE(seconds_of([&] { stage.weight_gradient(1); }), kTimes.weight);
}

TEST(Emulated, GivesTheShapesOfItsModules) {
  const Sequential net = narrowing();
  EmulatedStage stage(net, {1e-6, 1e-6, 1e-6}, false);
  for (int again = 0; again < 2; ++again)
    for (const std::int64_t rows : {4, 1, 0}) {
      const Tensor output = stage.forward(0, torch::randn({rows, 5}), Backward::whole, {});
      EXPECT_TRUE(torch::equal(output, torch::zeros({rows, 3})));
      EXPECT_FALSE(output.requires_grad());
      EXPECT_TRUE(torch::equal(stage.backward(0, torch::ones({rows, 3})), torch::zeros({rows, 5})));
      stage.forward(0, torch::randn({rows, 5}), Backward::split, {});
      EXPECT_TRUE(torch::equal(stage.input_gradient(0, torch::ones({rows, 3})), torch::zeros({rows, 5})));
      stage.weight_gradient(0);
      EXPECT_TRUE(torch::equal(stage.infer(torch::randn({rows, 5})), torch::zeros({rows, 3})));
    }
  for (const Tensor& parameter : net->parameters()) EXPECT_FALSE(parameter.grad().defined());
}

// The modules run once for a shape.
struct CountingImpl : torch::nn::Module {
  Tensor forward(const Tensor& x) {
    ++calls;
    EXPECT_FALSE(torch::GradMode::is_enabled());
    return x;
  }
  int calls = 0;
};
TORCH_MODULE(Counting);

TEST(Emulated, LearnsAShapeOnce) {
  const Counting counting;
  EmulatedStage stage(Sequential(counting), {1e-6, 1e-6, 1e-6}, false);
  for (const std::int64_t rows : {4, 4, 2, 4, 2}) stage.infer(torch::ones({rows, 3}));
  EXPECT_EQ(counting->calls, 2);
}

TEST(Emulated, TheLossIsNotANumberAndTheFirstStageGivesNoGradient) {
  EmulatedStage stage(narrowing(), {1e-6, 1e-6, 1e-6}, true);
  int losses = 0;
  const Tensor loss = stage.forward(0, torch::ones({2, 5}), Backward::whole, [&](const Tensor& output) {
    ++losses;
    return output.sum();
  });
  EXPECT_EQ(loss.dim(), 0);
  EXPECT_TRUE(std::isnan(loss.item<double>()));
  EXPECT_EQ(losses, 0);
  EXPECT_FALSE(stage.backward(0, {}).defined());
  stage.forward(0, torch::ones({2, 5}), Backward::split, {});
  EXPECT_FALSE(stage.input_gradient(0, {}).defined());
}

TEST(Emulated, KeepsMicrobatchesAsARealOneDoes) {
  EmulatedStage stage(narrowing(), {1e-6, 1e-6, 1e-6}, false);
  const Tensor input = torch::ones({2, 5});
  EXPECT_EQ(stage.live(), 0);
  stage.forward(0, input, Backward::whole, {});
  stage.forward(1, input, Backward::split, {});
  EXPECT_EQ(stage.live(), 2);
  EXPECT_THAT([&] { stage.forward(1, input, Backward::split, {}); },
              ThrowsMessage<UsageError>(HasSubstr("forward of microbatch 1 twice")));
  stage.backward(0, {});
  EXPECT_EQ(stage.live(), 1);
  EXPECT_THAT([&] { stage.backward(0, {}); },
              ThrowsMessage<UsageError>(HasSubstr("backward of microbatch 0, which had no forward")));
  stage.input_gradient(1, {});
  EXPECT_EQ(stage.live(), 1);
  stage.weight_gradient(1);
  EXPECT_EQ(stage.live(), 0);
  EXPECT_THROW(stage.input_gradient(1, {}), UsageError);
  stage.infer(input);
  EXPECT_EQ(stage.live(), 0);
  stage.forward(2, input, Backward::whole, {});
  stage.clear();
  EXPECT_EQ(stage.live(), 0);
}

TEST(Emulated, AStepsTimelineHasAllItsTimes) {
  const Task task = mlp_task(12);
  for (const std::string& name : schedule_names()) {
    SCOPED_TRACE(name);
    const Schedule schedule = make_schedule(name, 2, 3);
    std::vector<Timeline> timelines(2);
    run_world(2, [&](Communicator& comm) {
      const Sequential whole = seeded(task.make);
      const std::vector<Range> ranges = partition(costs_of(*whole), schedule.stages);
      std::vector<std::shared_ptr<Stage>> stages;
      for (std::size_t s = 0; s < ranges.size(); ++s)
        if (schedule.rank_of_stage[s] == comm.rank())
          stages.push_back(std::make_shared<EmulatedStage>(cut(*whole, ranges[s]), kTimes, s == 0));
      Executor pipeline(comm, schedule, stages, task.loss);
      for (int step = 0; step < 2; ++step) {
        ExecutedStep result = pipeline.step(cut_batch(task.inputs, 3), cut_batch(task.targets, 3));
        timelines[static_cast<std::size_t>(comm.rank())] = std::move(result.timeline);
        EXPECT_EQ(result.loss.has_value(), pipeline.has_last_stage());
        EXPECT_TRUE(std::isnan(result.loss.value_or(NAN)));
        EXPECT_EQ(result.peak_activations,
                  verify(schedule).prediction.peak_activations[static_cast<std::size_t>(comm.rank())]);
      }
    });
    const int on_a_rank = schedule.stages / schedule.ranks;
    for (const Utilisation& rank : utilisation(timelines))
      EXPECT_GE(rank.compute, 3 * on_a_rank * (kTimes.forward + kTimes.input + kTimes.weight));
    for (const Timeline& rank : timelines)
      for (const auto& [action, began, ended] : rank.moments)
        if (!is_message(action.kind)) {
          EXPECT_GE(std::chrono::duration<double>(ended - began).count(), kTimes.of(action.kind)) << to_string(action);
        }
  }
}

}  // namespace
}  // namespace lockstep::pipeline
