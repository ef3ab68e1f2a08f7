// Places in autograd's graph, without the tensors that were there: an edge holds the node that made a tensor, and not
// the tensor's memory. In one place, because libtorch's
// internals differ from version to version.
#pragma once

#include <torch/csrc/autograd/edge.h>
#include <torch/types.h>

#include <vector>

namespace lockstep::pipeline {

using torch::autograd::Edge;

// Where the gradient of `tensor` arrives. It must require one.
Edge edge_of(const torch::Tensor& tensor);

// The gradients that arrive at `places` when that of `output` is `gradient` (undefined: ones, for a scalar). The graph
// can be run again. A place that none reaches gets an undefined one.
std::vector<torch::Tensor> gradients_at(const std::vector<Edge>& places, const torch::Tensor& output,
                                        const torch::Tensor& gradient);

// Backward from `places`, where these gradients arrive, to `parameters` and nothing else. The graph goes.
void backward_from(const std::vector<Edge>& places, const std::vector<torch::Tensor>& gradients,
                   const std::vector<torch::Tensor>& parameters);

}  // namespace lockstep::pipeline
