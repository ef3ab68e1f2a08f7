#include "lockstep/parallel/pipeline/edges.h"

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/variable.h>

namespace lockstep::pipeline {
namespace {

torch::autograd::Engine& engine() { return torch::autograd::Engine::get_default_engine(); }

}  // namespace

Edge edge_of(const torch::Tensor& tensor) { return torch::autograd::impl::gradient_edge(tensor); }

std::vector<torch::Tensor> gradients_at(const std::vector<Edge>& places, const torch::Tensor& output,
                                        const torch::Tensor& gradient) {
  return engine().execute({edge_of(output)}, {gradient.defined() ? gradient : torch::ones_like(output)},
                          /*keep_graph=*/true, /*create_graph=*/false, /*accumulate_grad=*/false, places);
}

void backward_from(const std::vector<Edge>& places, const std::vector<torch::Tensor>& gradients,
                   const std::vector<torch::Tensor>& parameters) {
  std::vector<Edge> to;
  for (const torch::Tensor& parameter : parameters)
    to.emplace_back(torch::autograd::impl::grad_accumulator(parameter), 0);
  engine().execute(places, gradients, /*keep_graph=*/false, /*create_graph=*/false, /*accumulate_grad=*/true, to);
}

}  // namespace lockstep::pipeline
