// What the loop does not handle: libtorch's optimizer makes the whole step then.
#include <gtest/gtest.h>

#include <functional>
#include <utility>
#include <vector>

#include "kinds.h"
#include "lockstep/optimizer.h"

namespace lockstep::test {
namespace {

template <typename Kind>
class LeftToLibtorch : public ::testing::Test {};
TYPED_TEST_SUITE(LeftToLibtorch, Kinds, Names);

// Each of these has one parameter that the loop does not handle, beside a plain one: libtorch makes the step of both.
TYPED_TEST(LeftToLibtorch, ParametersAndGradients) {
  struct Case {
    const char* name;
    torch::Tensor parameter;
    std::function<torch::Tensor()> gradient;
  };
  torch::manual_seed(1);
  const auto imaginary = [] { return torch::imag(torch::conj(torch::randn({}, at::kComplexFloat))); };
  ASSERT_TRUE(imaginary().is_neg());  // its memory holds the numbers with the other sign
  const std::vector<Case> cases = {
      {"double", torch::randn({100}, at::kDouble), [] { return torch::randn({100}, at::kDouble); }},
      {"transposed gradient", torch::randn({20, 20}),
       [] {
         return torch::randn({20, 20}).t();
       }},
      {"gradient with gaps", torch::randn({20}), [] { return torch::randn({40}).slice(0, 0, 40, 2); }},
      {"one gradient for all", torch::randn({20}), [] { return torch::randn({1}); }},
      {"parameter with gaps", torch::randn({20, 2}).select(1, 0),
       [] {
         return torch::randn({20, 2}).select(1, 0);
       }},
      {"negated view", torch::randn({}), imaginary}};
  for (const Case& c : cases) {
    Pair pair;
    pair.add(torch::randn({100}));
    for (auto* side : {&pair.mine, &pair.theirs}) {  // with the parameter's strides, which clone() may not keep
      const torch::Tensor copy = torch::empty_strided({c.parameter.numel() * 2}, {1}, c.parameter.options());
      torch::Tensor parameter = copy.as_strided(c.parameter.sizes(), c.parameter.strides());
      parameter.copy_(c.parameter);
      side->push_back(parameter.set_requires_grad(true));
    }
    typename TypeParam::Mine mine(pair.mine, TypeParam::with_state());
    typename TypeParam::Theirs theirs(pair.theirs, TypeParam::with_state());
    for (int step = 0; step < 5; ++step) {
      pair.set_gradient(0, torch::randn({100}));
      const torch::Tensor gradient = c.gradient();
      pair.mine[1].mutable_grad() = gradient;
      pair.theirs[1].mutable_grad() = gradient;
      const auto before = pair.mine[0]._version();
      EXPECT_GT(operations_in([&] { mine.step(); }), 0) << c.name;
      theirs.step();
      EXPECT_GT(pair.mine[0]._version(), before) << c.name;
    }
    pair.expect_same(c.name);
  }
}

TYPED_TEST(LeftToLibtorch, StateInAnotherOrder) {
  Pair pair;
  torch::manual_seed(1);
  pair.add(torch::randn({20, 20}));
  typename TypeParam::Mine mine(pair.mine, TypeParam::with_state());
  typename TypeParam::Theirs theirs(pair.theirs, TypeParam::with_state());
  const auto step = [&] {
    pair.draw_gradients();
    mine.step();
    theirs.step();
  };
  step();
  for (const auto& [optimizer, parameters] :
       {std::pair<torch::optim::Optimizer*, std::vector<torch::Tensor>*>{&mine, &pair.mine}, {&theirs, &pair.theirs}}) {
    auto& state = state_of<TypeParam>(*optimizer, (*parameters)[0]);
    TypeParam::set_tensor(state, TypeParam::tensors(state)[0].t().contiguous().t());
  }
  for (int i = 0; i < 5; ++i) step();
  TypeParam::expect_close(pair, "transposed state", 1e-2);
}

template <typename Kind>
class Amsgrad : public ::testing::Test {};
using WithAmsgrad = ::testing::Types<AdamKind, AdamWKind>;
TYPED_TEST_SUITE(Amsgrad, WithAmsgrad, Names);

TYPED_TEST(Amsgrad, IsLeftToLibtorch) {
  Pair pair = some();
  const auto options = TypeParam::with_state().amsgrad(true);
  typename TypeParam::Mine mine(pair.mine, options);
  typename TypeParam::Theirs theirs(pair.theirs, options);
  for (int step = 0; step < kSteps; ++step) {
    pair.draw_gradients(step < 10 ? 10 : 0.1);  // so the largest square is not the last one
    mine.step();
    theirs.step();
  }
  pair.expect_same("amsgrad");
  EXPECT_TRUE(state_of<TypeParam>(mine, pair.mine[0]).max_exp_avg_sq().defined());
}

TEST(SparseGradients, AreLeftToLibtorch) {
  const auto sparse = [] { return torch::sparse_coo_tensor(torch::tensor({{1, 3}}), torch::tensor({1.F, 2.F}), {5}); };
  Pair pair;
  pair.add(torch::ones({5}));
  SGD mine(pair.mine, 0.1);
  torch::optim::SGD theirs(pair.theirs, 0.1);
  pair.mine[0].mutable_grad() = sparse();
  pair.theirs[0].mutable_grad() = sparse();
  mine.step();
  theirs.step();
  pair.expect_same("sparse");
  EXPECT_FLOAT_EQ(pair.mine[0][3].item<float>(), 0.8F);
  Adam adam(pair.mine, torch::optim::AdamOptions(0.1));
  EXPECT_THROW(adam.step(), c10::Error);  // as libtorch's does
}

}  // namespace
}  // namespace lockstep::test
