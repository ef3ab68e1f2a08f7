#include "lockstep/parallel/pipeline/run/stage.h"

#include <ATen/record_function.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/batchnorm.h>

#include <functional>
#include <memory>
#include <string_view>

#include "lockstep/error.h"
#include "nets.h"

namespace lockstep::pipeline {
namespace {

using namespace test;

struct Gradients {
  Tensor output, input;
  std::vector<Tensor> weights;
};

Gradients by_autograd(Sequential net, const Tensor& input, const Tensor& gradient) {
  net->zero_grad();
  const Tensor leaf = input.detach().clone().requires_grad_();
  const Tensor output = net->forward(leaf);
  output.backward(gradient);
  Gradients found{output.detach(), leaf.grad(), {}};
  for (const Tensor& parameter : net->parameters()) found.weights.push_back(parameter.grad().clone());
  return found;
}

void expect_equal(const Gradients& want, const Tensor& output, const Tensor& input, const Sequential& net) {
  EXPECT_TRUE(close(output, want.output));
  EXPECT_TRUE(close(input, want.input));
  std::vector<Tensor> gradients;
  for (const Tensor& parameter : net->parameters()) gradients.push_back(parameter.grad());
  EXPECT_TRUE(close(gradients, want.weights));
}

struct Case {
  Sequential net;
  Tensor input;
};

// A module with parameters that is made of several.
struct PairImpl : torch::nn::Module {
  Tensor forward(const Tensor& x) { return second(torch::relu(first(x))); }
  torch::nn::Linear first = register_module("first", torch::nn::Linear(6, 6));
  torch::nn::Linear second = register_module("second", torch::nn::Linear(6, 3));
};
TORCH_MODULE(Pair);

std::vector<Case> cases() {
  return seeded([] {
    using namespace torch::nn;
    std::vector<Case> all;
    all.push_back({Sequential(Linear(5, 7)), torch::randn({3, 5})});
    all.push_back(
        {Sequential(Linear(5, 7), ReLU(), Linear(LinearOptions(7, 4).bias(false)), Tanh()), torch::randn({3, 5})});
    all.push_back(
        {Sequential(Tanh(), Linear(5, 7), ReLU(ReLUOptions().inplace(true)), Linear(7, 2)), torch::randn({3, 5})});
    all.push_back({Sequential(Conv2d(Conv2dOptions(2, 3, 3).padding(1)), ReLU(), MaxPool2d(2),
                              Conv2d(Conv2dOptions(3, 4, 3)), ReLU(), Flatten(), Linear(16, 5)),
                   torch::randn({3, 2, 8, 8})});
    all.push_back({Sequential(Conv1d(2, 3, 3), Tanh()), torch::randn({3, 2, 8})});
    all.push_back({Sequential(Linear(5, 6), BatchNorm1d(6), ReLU(), Linear(6, 2)), torch::randn({4, 5})});
    all.push_back({Sequential(Linear(5, 6), Pair()), torch::randn({4, 5})});
    return all;
  });
}

TEST(Stage, EveryWayBackGivesAutogradsNumbers) {
  for (Case each : cases())
    for (const bool recompute : {false, true})
      for (const char* way : {"B", "B of a split forward", "I and W"}) {
        SCOPED_TRACE(fmt::format("{} {}", way, recompute));
        const Tensor gradient = torch::ones_like(each.net->forward(each.input)).mul(0.5);
        const Gradients want = by_autograd(each.net, each.input, gradient);
        each.net->zero_grad();
        SequentialStage stage(*each.net, {.recompute = recompute});
        const bool whole = std::string(way) == "B";
        const Tensor output = stage.forward(3, each.input, whole ? Backward::whole : Backward::split, {});
        EXPECT_FALSE(output.requires_grad());
        EXPECT_EQ(stage.live(), 1);
        Tensor input;
        if (std::string(way) == "I and W") {
          input = stage.input_gradient(3, gradient);
          for (const Tensor& parameter : each.net->parameters())
            // Since 2.0 zero_grad() leaves no gradient at all.
            EXPECT_TRUE(!parameter.grad().defined() || !parameter.grad().any().item<bool>()) << "before W";
          EXPECT_EQ(stage.live(), 1);
          stage.weight_gradient(3);
        } else {
          input = stage.backward(3, gradient);
        }
        expect_equal(want, output, input, each.net);
        EXPECT_EQ(stage.live(), 0);
      }
}

// How often torch multiplies matrices on this thread, as its profiler sees it.
int products(const std::function<void()>& body) {
  static thread_local int count;
  count = 0;
  const auto handle = at::addThreadLocalCallback(
      at::RecordFunctionCallback([](const at::RecordFunction& function) -> std::unique_ptr<at::ObserverContext> {
        if (std::string_view(function.name()) == "aten::mm") ++count;
        return nullptr;
      }));
  body();
  at::removeCallback(handle);
  return count;
}

TEST(Stage, SplitDoesNotWorkTwice) {
  using namespace torch::nn;
  const Sequential net(Linear(5, 7), ReLU(), Linear(7, 7), ReLU(), Linear(7, 4));
  const Tensor input = torch::randn({3, 5});
  const Tensor gradient = torch::ones({3, 4});
  SequentialStage stage(*net);
  stage.forward(0, input, Backward::whole, {});
  EXPECT_EQ(products([&] { stage.backward(0, gradient); }), 6);
  stage.forward(0, input, Backward::split, {});
  EXPECT_EQ(products([&] { stage.input_gradient(0, gradient); }), 3);
  EXPECT_EQ(products([&] { stage.weight_gradient(0); }), 3);
}

TEST(Stage, MicrobatchesOverlapAndAddUp) {
  Case each = cases()[1];
  const Tensor other = each.input * 2 + 1;
  const Tensor gradient = torch::ones({3, 4});
  const Gradients a = by_autograd(each.net, each.input, gradient);
  const Gradients b = by_autograd(each.net, other, gradient);
  each.net->zero_grad();
  SequentialStage stage(*each.net);
  stage.forward(0, each.input, Backward::split, {});
  stage.forward(1, other, Backward::split, {});
  EXPECT_TRUE(close(stage.input_gradient(1, gradient), b.input));
  EXPECT_TRUE(close(stage.input_gradient(0, gradient), a.input));
  EXPECT_EQ(stage.live(), 2);
  stage.weight_gradient(1);
  stage.weight_gradient(0);
  EXPECT_TRUE(close(each.net->parameters()[0].grad(), a.weights[0] + b.weights[0]));
}

TEST(Stage, TheFirstWantsNoGradientOfItsInput) {
  Case each = cases()[3];
  for (const Backward way : {Backward::whole, Backward::split}) {
    SequentialStage stage(*each.net, {.first = true});
    const Tensor gradient = torch::ones_like(stage.forward(0, each.input, way, {}));
    EXPECT_FALSE(stage.backward(0, gradient).defined());
  }
}

TEST(Stage, ATailIsTheLoss) {
  Case each = cases()[1];
  const Tensor target = torch::zeros({3, 4});
  const Tail tail = [&](const Tensor& output) { return mse(output, target); };
  const Tensor leaf = each.input.clone().requires_grad_();
  const Tensor want = mse(each.net->forward(leaf), target);
  want.backward();
  for (const Backward way : {Backward::whole, Backward::split}) {
    SequentialStage stage(*each.net);
    EXPECT_EQ(stage.forward(0, each.input, way, tail).tensor().item<float>(), want.item<float>());
    EXPECT_TRUE(close(stage.backward(0, {}), leaf.grad()));
  }
}

TEST(Stage, RecomputeDrawsTheSameAgain) {
  using namespace torch::nn;
  const Sequential net(Linear(20, 20), Dropout(0.5));
  SequentialStage stage(*net, {.first = true, .recompute = true});
  const Tensor output = stage.forward(0, torch::ones({4, 20}), Backward::whole, {});
  const Tensor before = torch::rand({3});
  torch::manual_seed(3);
  const Tensor next = torch::rand({3});
  torch::manual_seed(3);
  stage.backward(0, torch::ones({4, 20}));
  EXPECT_TRUE(torch::equal(torch::rand({3}), next)) << "the generator goes on where it was";
  // Each output that was not dropped gives its bias 2.
  const Tensor want = (output != 0).sum(0).to(torch::kFloat32) * 2;
  EXPECT_TRUE(torch::equal(net->named_parameters()["0.bias"].grad(), want));
}

// Weak references see what is really alive.
TEST(Stage, LetsGoOfWhatItKept) {
  Case each = cases()[1];
  for (const Backward way : {Backward::whole, Backward::split}) {
    SequentialStage stage(*each.net);
    Tensor input = each.input.clone();
    const c10::weak_intrusive_ptr<c10::StorageImpl> memory(
        c10::intrusive_ptr<c10::StorageImpl>::unsafe_reclaim_from_nonowning(input.storage().unsafeGetStorageImpl()));
    stage.forward(0, input, way, {});
    input.reset();
    EXPECT_FALSE(memory.expired());
    stage.backward(0, torch::ones({3, 4}));
    EXPECT_TRUE(memory.expired());
  }
}

TEST(Stage, RefusesWhatIsOutOfOrder) {
  Case each = cases()[0];
  SequentialStage stage(*each.net);
  EXPECT_THROW(stage.backward(0, torch::ones({3, 7})), UsageError);
  stage.forward(0, each.input, Backward::whole, {});
  EXPECT_THROW(stage.forward(0, each.input, Backward::whole, {}), UsageError);
  EXPECT_THROW(stage.input_gradient(0, torch::ones({3, 7})), UsageError);
  stage.clear();
  EXPECT_EQ(stage.live(), 0);
}

}  // namespace
}  // namespace lockstep::pipeline
