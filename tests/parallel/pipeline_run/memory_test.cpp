// What a rank holds at most, in bytes of tensors, as torch's allocator reports them for its thread.
#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "lockstep/libtorch/versions.h"
#include "nets.h"

namespace lockstep::pipeline {
namespace {

using namespace test;

class Meter final : public c10::MemoryReportingInfoBase {
 public:
  void reportMemoryUsage(void*, std::int64_t bytes, libtorch::ReportedTotal, libtorch::ReportedTotal,
                         c10::Device) override {
    held_ += bytes;
    peak_ = std::max(peak_, held_);
  }
  bool memoryProfilingEnabled() const override { return true; }
  std::int64_t peak() const { return peak_; }
  std::int64_t held() const { return held_; }

 private:
  std::int64_t held_ = 0;
  std::int64_t peak_ = 0;
};

TEST(Memory, NoRankEverHoldsTheWholeMLP) {
  const MLPSizes sizes{.dim = 64, .depth = 16};
  const std::int64_t layer = 64 * 65 * 4;
  for (const Range& range : partition(costs_of(sizes), 4)) {
    const auto meter = std::make_shared<Meter>();
    const c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, meter);
    const auto part = seeded([&] { return std::make_shared<ShardedMLPImpl>(sizes, range); });
    std::int64_t mine = 0;
    for (const Tensor& parameter : part->parameters()) mine += parameter.numel() * 4;
    EXPECT_GE(meter->held(), mine);
    EXPECT_LE(meter->peak(), mine + 2 * layer);  // the whole would be 17
  }
}

TEST(Memory, AStageOfACnnHoldsOneLayerBesidesItsOwn) {
  const auto layers = model::layers_of({.kind = model::ModelKind::cnn, .channels = {16, 32}, .hidden = 64});
  std::int64_t largest = 0;
  for (const model::Layer& layer : layers) largest = std::max(largest, layer.parameters * 4);
  for (const Range& range : partition(costs_of(layers), 4)) {
    const auto meter = std::make_shared<Meter>();
    const c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, meter);
    const Sequential part = seeded([&] { return make_stage(layers, range); });
    const std::int64_t mine = 4 * model::size_of(*part).parameters;
    EXPECT_GE(meter->held(), mine);
    EXPECT_LE(meter->held(), mine + 4096);
    EXPECT_LE(meter->peak(), mine + largest + 4096) << range.begin;
  }
}

TEST(Memory, MeasuringHoldsOneLayerAtATime) {
  const auto layers = model::mlp_layers(64, 16, 2);
  const std::int64_t layer = 64 * 65 * 4;
  const auto meter = std::make_shared<Meter>();
  const c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, meter);
  seeded([&] { return measure(layers, torch::ones({1, 64}), 1); });
  EXPECT_LE(meter->held(), 4096);
  EXPECT_LE(meter->peak(), 4 * layer);  // with its gradients; all would be 17
}

// [rank]: the most that a rank's steps took beyond what was there before them.
std::vector<std::int64_t> peaks_of(const std::string& name, bool recompute) {
  const Task task = mlp_task(800);
  const Schedule schedule = make_schedule(name, 2, 8);
  std::vector<std::int64_t> peaks(2);
  run_world(2, [&](Communicator& comm) {
    const Part part = part_of(task, schedule, comm.rank(), recompute);
    Executor pipeline(comm, schedule, part.stages, task.loss);
    const auto meter = std::make_shared<Meter>();
    const c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, meter);
    for (int step = 0; step < 3; ++step) pipeline.step(cut_batch(task.inputs, 8), cut_batch(task.targets, 8));
    peaks[static_cast<std::size_t>(comm.rank())] = meter->peak();
  });
  return peaks;
}

TEST(Memory, FollowsTheActivationsThatTheScheduleHolds) {
  const auto gpipe = peaks_of("gpipe", false);       // 8 microbatches on both ranks
  const auto one_f_one_b = peaks_of("1f1b", false);  // 2 and 1
  const auto recomputed = peaks_of("gpipe", true);   // 8 inputs, and one microbatch in full
  for (std::size_t rank = 0; rank < 2; ++rank) {
    EXPECT_LT(one_f_one_b[rank] * 2, gpipe[rank]) << "rank " << rank;
    EXPECT_LT(recomputed[rank] * 2, gpipe[rank]) << "rank " << rank;
  }
}

TEST(Memory, IsBackAfterAStep) {
  const Task task = mlp_task(80);
  run_world(1, [&](Communicator& comm) {
    const Schedule schedule = make_schedule("zb-h1", 1, 4);
    const Part part = part_of(task, schedule, 0);
    Executor pipeline(comm, schedule, part.stages, task.loss);
    const auto inputs = cut_batch(task.inputs, 4);
    const auto targets = cut_batch(task.targets, 4);
    pipeline.step(inputs, targets);  // the gradients are there now
    const auto meter = std::make_shared<Meter>();
    const c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, meter);
    pipeline.step(inputs, targets);
    EXPECT_EQ(meter->held(), 0);
    EXPECT_GT(meter->peak(), 0);
  });
}

// In activations of 32 KB: what one microbatch holds in a stage of four Linear and ReLU.
TEST(Memory, ASplitBackwardHoldsNoMoreAfterForward) {
  constexpr std::int64_t kActivation = 32 * 256 * 4;
  torch::nn::Sequential net;
  for (int layer = 0; layer < 4; ++layer) {
    net->push_back(torch::nn::Linear(256, 256));
    net->push_back(torch::nn::ReLU());
  }
  for (Tensor& parameter : net->parameters()) parameter.mutable_grad() = torch::zeros_like(parameter);
  const Tensor input = torch::randn({32, 256});
  const Tensor gradient = torch::randn({32, 256});
  for (const Backward how : {Backward::whole, Backward::split}) {
    SequentialStage stage(*net);
    const auto meter = std::make_shared<Meter>();
    const c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, meter);
    const auto held = [&] { return static_cast<double>(meter->held()) / kActivation; };
    stage.forward(0, input, how, {});
    EXPECT_NEAR(held(), 4, 0.1);
    if (how == Backward::whole) {
      stage.backward(0, gradient);
    } else {
      stage.input_gradient(0, gradient);
      EXPECT_NEAR(held(), 3 + 4, 0.1);  // inputs of all layers but the first, and a gradient for each
      stage.weight_gradient(0);
    }
    EXPECT_NEAR(held(), 0, 0.1);
  }
}

}  // namespace
}  // namespace lockstep::pipeline
