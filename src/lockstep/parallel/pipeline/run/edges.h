// Places in autograd's graph, without the tensors that were there: an edge holds the node that made a tensor, but not
// the tensor's memory. These functions are in one place because libtorch's internals differ from version to version.
#pragma once

#include <torch/csrc/autograd/edge.h>
#include <torch/types.h>

#include <vector>

namespace lockstep::pipeline {

using torch::autograd::Edge;

// The edge at which the gradient of `tensor` arrives. `tensor` must require a gradient.
Edge edge_of(const torch::Tensor& tensor);

// Returns the gradients that arrive at `places` when those of `outputs` are `gradients`. The graph is kept and can be
// run again. A place that no gradient reaches gets an undefined tensor.
std::vector<torch::Tensor> gradients_at(const std::vector<Edge>& places, const std::vector<torch::Tensor>& outputs,
                                        const std::vector<torch::Tensor>& gradients);

// Runs backward from `places`, where `gradients` arrive, to `parameters` and to nothing else. The graph is freed.
void backward_from(const std::vector<Edge>& places, const std::vector<torch::Tensor>& gradients,
                   const std::vector<torch::Tensor>& parameters);

}  // namespace lockstep::pipeline
