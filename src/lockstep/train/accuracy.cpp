#include "lockstep/train/accuracy.h"

#include <array>

#include "lockstep/data.h"

namespace lockstep::train {
namespace {

constexpr std::int64_t kRowsAtOnce = 250;

}  // namespace

double accuracy(Strategy& strategy, const data::Dataset& test, Communicator& comm, int replicas) {
  const torch::NoGradGuard no_gradients;
  torch::nn::SequentialImpl& model = strategy.model();
  const bool was_training = model.is_training();
  model.eval();
  const data::DistributedSampler sampler(test.size(), comm.rank() / (comm.size() / replicas), replicas,
                                         {.shuffle = false, .remainder = data::Remainder::pad});
  data::Loader loader(data::fetch_from(test), sampler, {.batch = kRowsAtOnce * replicas, .prefetch = false});
  std::array<std::int64_t, 2> right_of{0, 0};
  while (const auto batch = loader.next()) {
    const std::int64_t rows = batch->rows() - batch->padding;
    if (rows == 0) continue;
    const torch::Tensor output = strategy.infer(batch->inputs.narrow(0, 0, rows));
    if (!output.defined()) continue;  // another rank has it
    right_of[0] += output.argmax(1).eq(batch->targets.narrow(0, 0, rows)).sum().item<std::int64_t>();
    right_of[1] += rows;
  }
  model.train(was_training);
  comm.all_reduce(std::span<std::int64_t>(right_of));
  return static_cast<double>(right_of[0]) / static_cast<double>(right_of[1]);
}

}  // namespace lockstep::train
