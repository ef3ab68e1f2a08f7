#include "lockstep/parallel/pipeline/run/edges.h"

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/variable.h>

namespace lockstep::pipeline {
namespace {

torch::autograd::Engine& engine() { return torch::autograd::Engine::get_default_engine(); }

}  // namespace

Edge edge_of(const torch::Tensor& tensor) { return torch::autograd::impl::gradient_edge(tensor); }

std::vector<torch::Tensor> gradients_at(const std::vector<Edge>& places, const std::vector<torch::Tensor>& outputs,
                                        const std::vector<torch::Tensor>& gradients) {
  std::vector<Edge> from;
  for (const torch::Tensor& output : outputs) from.push_back(edge_of(output));
  return engine().execute(from, gradients, /*keep_graph=*/true, /*create_graph=*/false, /*accumulate_grad=*/false,
                          places);
}

void backward_from(const std::vector<Edge>& places, const std::vector<torch::Tensor>& gradients,
                   const std::vector<torch::Tensor>& parameters) {
  std::vector<Edge> to;
  for (const torch::Tensor& parameter : parameters)
    to.emplace_back(torch::autograd::impl::grad_accumulator(parameter), 0);
  engine().execute(places, gradients, /*keep_graph=*/false, /*create_graph=*/false, /*accumulate_grad=*/true, to);
}

}  // namespace lockstep::pipeline
