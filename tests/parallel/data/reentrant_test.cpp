// A backward inside the backward: checkpointing that computes a part of the forward again when its gradient is needed.
// PyTorch's test_ddp_checkpointing_once checks the same.
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include "lockstep/data_parallel.h"
#include "nets.h"

namespace lockstep {
namespace {

using namespace test;
using Part = std::function<torch::Tensor(const torch::Tensor&)>;

// Keeps the input only, and runs the part again in backward, which has a backward of its own.
struct Checkpoint : torch::autograd::Function<Checkpoint> {
  static torch::Tensor forward(torch::autograd::AutogradContext* context, const torch::Tensor& input,
                               std::int64_t part) {
    context->save_for_backward({input});
    context->saved_data["part"] = part;
    const torch::NoGradGuard no_grad;
    return (*reinterpret_cast<const Part*>(part))(input);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    const torch::AutoGradMode grad(true);
    const torch::Tensor input = context->get_saved_variables()[0].detach().requires_grad_(true);
    const torch::Tensor output = (*reinterpret_cast<const Part*>(context->saved_data["part"].toInt()))(input);
    torch::autograd::backward({output}, {gradients[0]});
    return {input.grad(), torch::Tensor()};
  }
};

// Which of its two halves is computed again.
struct HalvesImpl : torch::nn::Module {
  HalvesImpl(bool first_again, bool last_again) : first_again_(first_again), last_again_(last_again) {
    first = register_module("first", torch::nn::Linear(kDim, kDim));
    last = register_module("last", torch::nn::Linear(kDim, 1));
  }
  torch::Tensor forward(torch::Tensor x) {
    const auto run = [](bool again, const Part& part, const torch::Tensor& input) {
      return again ? Checkpoint::apply(input, reinterpret_cast<std::int64_t>(&part)) : part(input);
    };
    x = run(first_again_, first_part, x);
    return run(last_again_, last_part, x);
  }
  torch::nn::Linear first{nullptr}, last{nullptr};
  const Part first_part = [this](const torch::Tensor& x) { return torch::relu(first(x)); };
  const Part last_part = [this](const torch::Tensor& x) { return last(x); };

 private:
  const bool first_again_, last_again_;
};

std::vector<torch::Tensor> trained(bool first_again, bool last_again, int ranks, const DdpOptions& options) {
  const Data data = draw(12L * ranks);
  std::vector<torch::Tensor> weights;
  thread_world(ranks, [&](Communicator& comm) {
    auto net = seeded<HalvesImpl>(3, first_again, last_again);
    DistributedDataParallel ddp(net, comm, options);
    const auto optimizer = sgd()(ddp.parameters());
    const Data mine = data.share(comm);
    for (int step = 0; step < 4; ++step) {
      optimizer->zero_grad();
      mse(ddp.forward(mine.x.detach().requires_grad_(true)), mine.y).backward();
      optimizer->step();
    }
    if (comm.rank() == 0) weights = copies(*net);
  });
  return weights;
}

TEST(Reentrant, CheckpointedLayersAreAveragedLikeOthers) {
  for (const int ranks : {2, 3})
    for (const bool static_graph : {false, true})
      for (const bool flat : {false, true}) {
        const DdpOptions options{.first_bucket_bytes = 64, .static_graph = static_graph, .flat = flat};
        const auto plain = trained(false, false, ranks, options);
        for (const auto& [first, last] : {std::pair{false, true}, {true, false}, {true, true}}) {
          SCOPED_TRACE(testing::Message() << ranks << " ranks, static_graph " << static_graph << ", flat " << flat
                                          << ", first again " << first << ", last again " << last);
          const auto again = trained(first, last, ranks, options);
          ASSERT_EQ(again.size(), plain.size());
          for (std::size_t i = 0; i < plain.size(); ++i) EXPECT_TRUE(torch::equal(again[i], plain[i]));
        }
      }
}

}  // namespace
}  // namespace lockstep
