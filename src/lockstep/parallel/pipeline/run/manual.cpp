#include "lockstep/manual.h"

#include "lockstep/base/clock.h"
#include "lockstep/parallel/pipeline/run/partition.h"

namespace lockstep::pipeline {

std::pair<torch::nn::Sequential, torch::nn::Sequential> cut_in_two(const torch::nn::SequentialImpl& network) {
  const std::vector<Range> ranges = partition(costs_of(network), 2);
  return {cut(network, ranges[0]), cut(network, ranges[1])};
}

// region step
torch::Tensor manual_pipeline_step(const Part& first, const Part& second, const torch::Tensor& inputs,
                                   const std::function<torch::Tensor(const torch::Tensor& output)>& loss,
                                   ManualPipelineTimes* times) {
  ManualPipelineTimes spent;
  Stopwatch lap;
  first.optimizer.zero_grad();
  second.optimizer.zero_grad();
  spent.optimizer = lap();

  const torch::Tensor output = first.model.forward(inputs);
  const torch::Tensor leaf = output.detach().requires_grad_();  // the same values, where a new graph begins
  const torch::Tensor result = loss(second.model.forward(leaf));
  spent.forward = lap();

  result.backward();                                         // from the loss to the leaf, and no further
  if (output.requires_grad()) output.backward(leaf.grad());  // from the cut to the inputs, unless `first` is frozen
  spent.backward = lap();

  first.optimizer.step();
  second.optimizer.step();
  spent.optimizer += lap();
  if (times) *times = spent;
  return result.detach();
}
// endregion

}  // namespace lockstep::pipeline
