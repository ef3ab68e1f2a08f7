// The loop for any machine, which a machine with AVX2 never chooses by itself, makes the steps of the one for AVX2.
#include "lockstep/optim/kernel.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include <vector>

#include "kinds.h"

namespace lockstep::test {
namespace {

#if defined(__x86_64__)

constexpr std::int64_t kElements = 4097;
constexpr std::size_t kBegin = 3, kEnd = 4090;

// parameter, gradient and two arrays of state, the last of which has no negative elements.
std::vector<torch::Tensor> arrays() {
  torch::manual_seed(1);
  std::vector<torch::Tensor> made;
  for (int i = 0; i < 4; ++i) made.push_back(torch::randn({kElements}));
  made[3].square_();
  return made;
}

template <typename MakeUpdate>
void expect_the_same_steps(const MakeUpdate& make) {
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) GTEST_SKIP() << "no AVX2";
  const std::vector<torch::Tensor> before = arrays(), wide = arrays(), narrow = arrays();
  optim::avx2::apply(make(wide), kBegin, kEnd);
  optim::baseline::apply(make(narrow), kBegin, kEnd);
  for (std::size_t i = 0; i < before.size(); ++i)
    EXPECT_TRUE(close(narrow[i], wide[i], kRounding)) << i;  // one step rounds by less than 50 do
  const torch::Tensor changed = narrow[0] != before[0];
  EXPECT_TRUE(changed.slice(0, kBegin, kEnd).all().item<bool>());
  EXPECT_FALSE(changed.slice(0, 0, kBegin).any().item<bool>());
  EXPECT_FALSE(changed.slice(0, kEnd).any().item<bool>());
}

TEST(Kernels, AdamIsTheSameInBoth) {
  for (const float decay : {0.F, 0.1F})
    for (const float keep : {1.F, 0.9F})
      expect_the_same_steps([&](const std::vector<torch::Tensor>& a) {
        return optim::AdamUpdate{.parameter = a[0].data_ptr<float>(),
                                 .gradient = a[1].data_ptr<float>(),
                                 .average = a[2].data_ptr<float>(),
                                 .square = a[3].data_ptr<float>(),
                                 .beta1 = 0.9F,
                                 .rest1 = 0.1F,
                                 .beta2 = 0.999F,
                                 .rest2 = 0.001F,
                                 .root = 0.5F,
                                 .epsilon = 1e-3F,
                                 .minus_rate = -0.1F,
                                 .decay = decay,
                                 .keep = keep};
      });
}

TEST(Kernels, SgdIsTheSameInBoth) {
  for (const float decay : {0.F, 0.1F})
    for (const bool momentum : {false, true})
      for (const bool nesterov : {false, true})
        expect_the_same_steps([&](const std::vector<torch::Tensor>& a) {
          return optim::SgdUpdate{.parameter = a[0].data_ptr<float>(),
                                  .gradient = a[1].data_ptr<float>(),
                                  .buffer = momentum ? a[2].data_ptr<float>() : nullptr,
                                  .momentum = 0.9F,
                                  .rest = 0.7F,
                                  .minus_rate = -0.1F,
                                  .decay = decay,
                                  .nesterov = nesterov};
        });
}

#endif

}  // namespace
}  // namespace lockstep::test
