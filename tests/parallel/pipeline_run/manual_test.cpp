// A network in two parts, the hand-off by hand: what it must come to is what the whole network does.
#include "lockstep/manual.h"
#include "lockstep/base/clock.h"

#include <gtest/gtest.h>
#include <torch/optim/adam.h>

#include "nets.h"

namespace lockstep::pipeline::test {
namespace {

constexpr int kSteps = 20;

// Both parts of a task's network. The cut may be anywhere, also between a layer and its ReLU.
struct Halves {
  Halves(const Task& task, std::int64_t at)
      : whole(seeded(task.make)),
        first(cut(*whole, {0, at})),
        second(cut(*whole, {at, static_cast<std::int64_t>(whole->size())})) {}

  Sequential whole, first, second;
};

Trained train_by_hand(const Task& task, std::int64_t at) {
  Trained trained;
  Halves halves(task, at);
  auto first = sgd(halves.first->parameters(), task.rate);
  auto second = sgd(halves.second->parameters(), task.rate);
  for (int step = 0; step < kSteps; ++step)
    trained.losses.push_back(
        manual_pipeline_step({*halves.first, first}, {*halves.second, second}, task.inputs, [&](const Tensor& output) {
          return task.loss(output, task.targets);
        }).item<double>());
  collect(trained, halves.whole);  // the parts share its modules
  return trained;
}

void expect_the_whole_networks_numbers(const Task& task, const std::vector<std::int64_t>& cuts) {
  const Trained want = train_alone(task, kSteps);
  ASSERT_LT(want.losses.back(), 0.99 * want.losses.front()) << "nothing was learnt: the test would show nothing";
  for (const std::int64_t at : cuts) {
    SCOPED_TRACE(at);
    expect_same(train_by_hand(task, at), want);
  }
}

bool has_gradients(const Sequential& part) {
  const auto parameters = part->parameters();
  return std::any_of(parameters.begin(), parameters.end(), [](const Tensor& p) { return p.grad().defined(); });
}

TEST(ManualPipeline, TheWholeMlpsNumbersWhereverItIsCut) {
  expect_the_whole_networks_numbers(mlp_task(), {1, 2, 7, 9, 18});
}

TEST(ManualPipeline, TheWholeCnnsNumbersWhereverItIsCut) {
  expect_the_whole_networks_numbers(cnn_task(), {1, 2, 3, 5, 6, 7, 9});
}

TEST(ManualPipeline, EachPartHasAnOptimizerOfItsOwn) {  // with a state that must fit: Adam's
  const Task task = mlp_task();
  const auto options = torch::optim::AdamOptions(1e-3);
  Halves halves(task, 5);
  Sequential whole = seeded(task.make);
  torch::optim::Adam first(halves.first->parameters(), options), second(halves.second->parameters(), options);
  torch::optim::Adam optimizer(whole->parameters(), options);
  for (int step = 0; step < kSteps; ++step) {
    optimizer.zero_grad();
    const Tensor want = task.loss(whole->forward(task.inputs), task.targets);
    want.backward();
    optimizer.step();
    const Tensor got = manual_pipeline_step({*halves.first, first}, {*halves.second, second}, task.inputs,
                                            [&](const Tensor& output) { return task.loss(output, task.targets); });
    EXPECT_TRUE(close(got.item<double>(), want.item<double>())) << "step " << step;
    EXPECT_FALSE(got.requires_grad());
  }
}

TEST(ManualPipeline, BackwardEndsAtTheCutUnlessTheGradientIsHandedOver) {
  const Task task = mlp_task();
  Halves halves(task, 4);
  const Tensor output = halves.first->forward(task.inputs);
  const Tensor leaf = output.detach().requires_grad_();
  task.loss(halves.second->forward(leaf), task.targets).backward();
  EXPECT_TRUE(has_gradients(halves.second));
  EXPECT_FALSE(has_gradients(halves.first)) << "autograd can't know of it: detach() cut the graph";

  output.backward(leaf.grad());
  Sequential whole = seeded(task.make);
  task.loss(whole->forward(task.inputs), task.targets).backward();
  const auto want = whole->parameters();
  const auto got = halves.whole->parameters();
  for (std::size_t i = 0; i < want.size(); ++i) EXPECT_TRUE(close(got[i].grad(), want[i].grad())) << i;
}

TEST(ManualPipeline, WithoutRequiresGradThereIsNothingToHandOver) {
  const Task task = mlp_task();
  Halves halves(task, 4);
  const Tensor forgotten = halves.first->forward(task.inputs).detach();
  task.loss(halves.second->forward(forgotten), task.targets).backward();
  EXPECT_TRUE(has_gradients(halves.second));
  EXPECT_FALSE(forgotten.grad().defined());
}

TEST(ManualPipeline, AFrozenFirstPartStaysAsItIs) {
  const Task task = mlp_task();
  Halves halves(task, 6);
  for (Tensor& parameter : halves.first->parameters()) parameter.requires_grad_(false);
  const Tensor before = halves.first->parameters().front().clone();
  auto first = sgd(halves.first->parameters(), task.rate);
  auto second = sgd(halves.second->parameters(), task.rate);
  const auto step = [&] {
    return manual_pipeline_step({*halves.first, first}, {*halves.second, second}, task.inputs,
                                [&](const Tensor& output) { return task.loss(output, task.targets); })
        .item<double>();
  };
  const double began = step();
  for (int i = 1; i < kSteps; ++i) step();
  EXPECT_LT(step(), began);
  EXPECT_TRUE(halves.first->parameters().front().equal(before));
}

TEST(ManualPipeline, TellsWhereTheTimeWent) {
  const Task task = mlp_task();
  Halves halves(task, 8);
  auto first = sgd(halves.first->parameters(), task.rate);
  auto second = sgd(halves.second->parameters(), task.rate);
  ManualPipelineTimes times;
  const auto began = Clock::now();
  manual_pipeline_step(
      {*halves.first, first}, {*halves.second, second}, task.inputs,
      [&](const Tensor& output) { return task.loss(output, task.targets); }, &times);
  const double all = seconds_since(began);
  for (const double part : {times.forward, times.backward, times.optimizer}) EXPECT_GT(part, 0);
  EXPECT_LE(times.forward + times.backward + times.optimizer, all);
}

}  // namespace
}  // namespace lockstep::pipeline::test
