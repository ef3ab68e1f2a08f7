// The models: what they are made of, how large they are, and what they refuse. Whether they draw what Python draws is
// in tests/data/python_test.cpp.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>

#include <functional>
#include <string>
#include <vector>

#include "lockstep/base/clock.h"
#include "lockstep/error.h"
#include "lockstep/model.h"
#include "numerics.h"

namespace lockstep::model {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> parameter_names(const torch::nn::Module& module) {
  std::vector<std::string> names;
  for (const auto& item : module.named_parameters()) names.push_back(item.key());
  return names;
}

std::vector<std::int64_t> output_shape(torch::nn::Sequential model, at::IntArrayRef inputs) {
  return model->forward(torch::ones(inputs)).sizes().vec();
}

// The text of the UsageError; it says what to try.
std::string refusal(const std::function<void()>& body) {
  try {
    body();
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(), HasSubstr("; try: "));
    return error.what();
  }
  ADD_FAILURE() << "nothing was refused";
  return "";
}

TEST(FullMLP, HasTheNamesOfPython) {
  EXPECT_THAT(parameter_names(*FullMLP(3, 2)),
              ElementsAre("0.weight", "0.bias", "2.weight", "2.bias", "4.weight", "4.bias"));
}

TEST(FullMLP, ComputesWhatItsLayersDo) {
  FullMLP mlp(5, 2, 3);
  const torch::Tensor x = torch::randn({4, 5});
  const auto p = mlp->parameters();
  torch::Tensor y = torch::relu(torch::addmm(p[1], x, p[0].t()));
  y = torch::relu(torch::addmm(p[3], y, p[2].t()));
  y = torch::addmm(p[5], y, p[4].t());
  EXPECT_TRUE(test::close(mlp->forward(x), y));
}

TEST(SimpleCNN, HasTheNamesOfPython) {
  EXPECT_THAT(parameter_names(*SimpleCNN()),
              ElementsAre("0.weight", "0.bias", "3.weight", "3.bias", "7.weight", "7.bias", "9.weight", "9.bias"));
}

TEST(SimpleCNN, TakesImagesDownToASideOfOne) {
  EXPECT_EQ(output_shape(make_model({.kind = ModelKind::cnn, .channels = {2, 3, 4, 5}, .hidden = 6}), {7, 1, 28, 28}),
            (std::vector<std::int64_t>{7, 10}));
  EXPECT_EQ(
      output_shape(make_model({.kind = ModelKind::cnn, .channels = {2}, .hidden = 6, .classes = 3, .image_side = 2}),
                   {7, 1, 2, 2}),
      (std::vector<std::int64_t>{7, 3}));
}

TEST(Make, SizesOfTheDefaults) {
  const Size mlp = size_of(*make_model({}));
  EXPECT_EQ(mlp.parameters, 16 * (128 * 128 + 128) + 2 * (128 + 1));
  EXPECT_EQ(mlp.gradient_bytes, 4U * 264450U);
  const Size cnn = size_of(*make_model({.kind = ModelKind::cnn}));
  EXPECT_EQ(cnn.parameters, 32 * (9 + 1) + 64 * (9 * 32 + 1) + 512 * (64 * 7 * 7 + 1) + 10 * (512 + 1));
  EXPECT_EQ(cnn.gradient_bytes, 4U * 1630090U);
}

struct Tied : torch::nn::Module {
  Tied() {
    first = register_module("first", torch::nn::Linear(4, 4));
    register_parameter("again", first->weight);
  }
  torch::nn::Linear first{nullptr};
};

TEST(Size, CountsASharedTensorOnce) { EXPECT_EQ(size_of(Tied()).parameters, 4 * 4 + 4); }

TEST(Size, FrozenParametersHaveNoGradient) {
  Tied module;
  module.first->bias.set_requires_grad(false);
  EXPECT_EQ(size_of(module).parameters, 20);
  EXPECT_EQ(size_of(module).gradient_bytes, 4U * 16U);
}

TEST(Size, ATypeOfTwoBytes) {
  Tied module;
  module.to(torch::kBFloat16);
  EXPECT_EQ(size_of(module).parameters, 20);
  EXPECT_EQ(size_of(module).gradient_bytes, 2U * 20U);
}

TEST(Make, NamesTheNearestModel) {
  EXPECT_THAT(refusal([] { kModels.parse("mpl"); }), HasSubstr("no model 'mpl'; try: mlp"));
  EXPECT_THAT(refusal([] { kModels.parse("recurrent"); }), HasSubstr("try: one of mlp, cnn"));
}

TEST(Make, RefusesSizesBelowOne) {
  for (const std::int64_t bad : {std::int64_t{0}, std::int64_t{-3}}) {
    const std::string value = fmt::format("is {}", bad);
    EXPECT_THAT(refusal([=] { make_model({.dim = bad}); }), HasSubstr("dim " + value));
    EXPECT_THAT(refusal([=] { make_model({.depth = bad}); }), HasSubstr("depth " + value));
    EXPECT_THAT(refusal([=] { make_model({.outputs = bad}); }), HasSubstr("outputs " + value));
    EXPECT_THAT(refusal([=] {
                  make_model({.kind = ModelKind::cnn, .channels = {32, bad}});
                }),
                HasSubstr("a count of channels " + value));
    EXPECT_THAT(refusal([=] { make_model({.kind = ModelKind::cnn, .hidden = bad}); }), HasSubstr("hidden " + value));
    EXPECT_THAT(refusal([=] { make_model({.kind = ModelKind::cnn, .classes = bad}); }), HasSubstr("classes " + value));
    EXPECT_THAT(refusal([=] { make_model({.kind = ModelKind::cnn, .image_side = bad}); }), HasSubstr("side " + value));
  }
  EXPECT_THAT(refusal([] { make_model({.kind = ModelKind::cnn, .channels = {}}); }), HasSubstr("is 0"));
}

TEST(Make, SaysAtWhichLayerTheImageIsUsedUp) {
  const std::string text = refusal([] { make_model({.kind = ModelKind::cnn, .channels = {2, 3, 4, 5, 6, 7}}); });
  EXPECT_THAT(text, HasSubstr("channels 2 3 4 5 6 7 use up the image"));
  EXPECT_THAT(text, HasSubstr("became 0 at layer 5 of 6 (28, 14, 7, 3, 1, 0)"));
  EXPECT_THAT(text, HasSubstr("try: at most 4 counts of channels"));
}

TEST(Make, RefusesWhatNoMemoryHolds) {
  const std::int64_t huge = std::int64_t{1} << 62;
  EXPECT_THAT(refusal([=] { make_model({.dim = huge}); }), HasSubstr("this machine has"));
  EXPECT_THAT(refusal([=] { make_model({.dim = 1, .depth = huge}); }), HasSubstr("this machine has"));
  EXPECT_THAT(refusal([=] { make_model({.kind = ModelKind::cnn, .channels = {huge}}); }),
              HasSubstr("this machine has"));
  EXPECT_THAT(refusal([=] { make_model({.kind = ModelKind::cnn, .image_side = huge}); }),
              HasSubstr("this machine has"));
}

// --- a model as a list of layers ---

std::vector<ModelConfig> some_models() {
  return {{},
          {.dim = 3, .depth = 1, .outputs = 7},
          {.kind = ModelKind::cnn},
          {.kind = ModelKind::cnn, .channels = {2, 3, 4}, .hidden = 5, .classes = 6, .image_side = 9},
          {.kind = ModelKind::transformer},
          {.kind = ModelKind::transformer,
           .transformer = {.dim = 6, .depth = 1, .heads = 3, .vocabulary = 5, .sequence = 7}}};
}

TEST(Layers, AreTheModelsModulesInItsOrder) {
  for (const ModelConfig& config : some_models()) {
    SCOPED_TRACE(name_of(config.kind));
    torch::manual_seed(3);
    const torch::nn::Sequential whole = make_model(config);
    const std::vector<Layer> layers = layers_of(config);
    ASSERT_EQ(layers.size(), whole->size());
    torch::manual_seed(3);
    std::size_t i = 0;
    for (const auto& module : *whole) {
      const torch::nn::AnyModule made = layers[i].make();
      EXPECT_EQ(made.type_info().hash_code(), module.type_info().hash_code()) << i;
      const auto got = made.ptr()->named_parameters(), want = module.ptr()->named_parameters();
      EXPECT_EQ(got.keys(), want.keys()) << i;
      std::int64_t parameters = 0;
      for (const auto& item : want) {
        EXPECT_TRUE(torch::equal(got[item.key()], item.value())) << i << " " << item.key();
        parameters += item.value().numel();
      }
      EXPECT_EQ(layers[i].parameters, parameters) << i;
      ++i;
    }
  }
}

TEST(Layers, CanBeMadeAgain) {
  const Layer layer = layers_of({.dim = 3}).front();
  const auto a = layer.make().ptr()->parameters(), b = layer.make().ptr()->parameters();
  EXPECT_FALSE(torch::equal(a[0], b[0])) << "another draw, another module";
}

TEST(Layers, SizesAreTheModels) {
  for (const ModelConfig& config : some_models()) {
    const Size planned = size_of(layers_of(config)), real = size_of(*make_model(config));
    EXPECT_EQ(planned.parameters, real.parameters);
    EXPECT_EQ(planned.gradient_bytes, real.gradient_bytes);
  }
  EXPECT_EQ(size_of(std::span<const Layer>()).parameters, 0);
}

TEST(Layers, AListMakesNoWeights) {
  const auto began = Clock::now();
  EXPECT_EQ(size_of(layers_of({.dim = 100'000, .depth = 4})).parameters, 4 * 100'000LL * 100'001 + 2 * 100'001);
  EXPECT_LT(seconds_since(began), 1);
}

TEST(Layers, RefusesWhatMakeModelRefuses) {
  EXPECT_THAT(refusal([] { layers_of({.dim = 0}); }), HasSubstr("dim is 0"));
  EXPECT_THAT(refusal([] { layers_of({.depth = -1}); }), HasSubstr("depth is -1"));
  EXPECT_THAT(refusal([] { layers_of({.outputs = 0}); }), HasSubstr("outputs is 0"));
  EXPECT_THAT(refusal([] { layers_of({.kind = ModelKind::cnn, .channels = {}}); }), HasSubstr("is 0"));
  EXPECT_THAT(refusal([] { layers_of({.kind = ModelKind::cnn, .hidden = 0}); }), HasSubstr("hidden is 0"));
  EXPECT_THAT(refusal([] {
                layers_of({.kind = ModelKind::cnn, .channels = {1, 2, 3, 4, 5}});
              }),
              HasSubstr("use up the image"));
}

TEST(Layers, AListThatNoModelHasIsRefusedAtOnce) {
  const auto began = Clock::now();
  EXPECT_THAT(refusal([] { layers_of({.dim = 1, .depth = 1'000'000'000}); }), HasSubstr("depth is 1000000000"));
  EXPECT_LT(seconds_since(began), 1);
  EXPECT_EQ(layers_of({.dim = 1, .depth = 1000}).size(), 2001U);
}

}  // namespace
}  // namespace lockstep::model
