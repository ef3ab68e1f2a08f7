#include "lockstep/train/accuracy.h"

#include <array>

#include "lockstep/data/loader.h"

namespace lockstep::train {
namespace {

constexpr std::int64_t kRowsAtOnce = 250;

}  // namespace

double accuracy(torch::nn::SequentialImpl& model, const data::Dataset& test, Communicator& comm) {
  const torch::NoGradGuard no_gradients;
  const bool was_training = model.is_training();
  model.eval();
  const data::DistributedSampler sampler(test.size(), comm.rank(), comm.size(),
                                         {.shuffle = false, .tail = data::Tail::pad});
  data::Loader loader(data::fetch_from(test), sampler, {.batch = kRowsAtOnce * comm.size(), .prefetch = false});
  std::array<std::int64_t, 2> right_of{0, 0};
  while (const auto batch = loader.next()) {
    const std::int64_t rows = batch->rows() - batch->padding;
    if (rows == 0) continue;
    const torch::Tensor guesses = model.forward(batch->inputs.narrow(0, 0, rows)).argmax(1);
    right_of[0] += guesses.eq(batch->targets.narrow(0, 0, rows)).sum().item<std::int64_t>();
    right_of[1] += rows;
  }
  model.train(was_training);
  comm.all_reduce(std::span<std::int64_t>(right_of));
  return static_cast<double>(right_of[0]) / static_cast<double>(right_of[1]);
}

}  // namespace lockstep::train
