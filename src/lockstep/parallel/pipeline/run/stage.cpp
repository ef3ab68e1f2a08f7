#include "lockstep/parallel/pipeline/run/stage.h"

#include <fmt/format.h>
#include <torch/csrc/autograd/autograd.h>

#include <utility>

#include "lockstep/error.h"
#include "lockstep/parallel/pipeline/run/generator.h"

namespace lockstep::pipeline {
namespace {

using torch::Tensor;

Activation detached(const Activation& activation) {
  return activation.map([](const Tensor& tensor) { return tensor.detach(); });
}

// The tensors of `outputs` that require a gradient, and their gradients. A gradient that is missing counts as zeros,
// and that of a loss as one. Both lists are in the form that autograd takes.
struct Roots {
  std::vector<Tensor> outputs, gradients;

  Roots(const Activation& all, const Activation& arrived) {
    for (std::size_t i = 0; i < all.tensors().size(); ++i) {
      const Tensor& output = all.tensors()[i];
      if (!output.requires_grad()) continue;
      const Tensor gradient = i < arrived.tensors().size() ? arrived.tensors()[i] : Tensor();
      outputs.push_back(output);
      gradients.push_back(gradient.defined()  ? gradient
                          : arrived.defined() ? torch::zeros_like(output)
                                              : torch::ones_like(output));
    }
  }
};

}  // namespace

SequentialStage::SequentialStage(const torch::nn::SequentialImpl& modules, const StageOptions& options)
    : options_(options) {
  if (modules.is_empty()) throw UsageError("a stage has no modules", "a range from partition()");
  for (const Tensor& parameter : modules.parameters())
    if (parameter.requires_grad()) parameters_.push_back(parameter);
  for (const auto& module : modules) {
    const bool has_parameters = !module.ptr()->parameters().empty();
    if (pieces_.empty()) first_begins_with_parameters_ = has_parameters;
    if (pieces_.empty() || has_parameters) pieces_.emplace_back();
    pieces_.back().push_back(module);
  }
}

Activation SequentialStage::forward(int microbatch, const Activation& input, Backward backward, const Tail& tail) {
  Kept kept{.input = detached(input), .tail = tail, .backward = backward, .generator = {}, .pieces = {}};
  Activation output;
  if (options_.recompute) {
    const torch::NoGradGuard no_grad;
    const Tensor before = generator_state();
    output = run_whole(kept.input, tail);
    if (!torch::equal(before, generator_state())) kept.generator = before;
  } else {
    run(kept);
    output = detached(kept.pieces.back().output);
  }
  if (!kept_.emplace(microbatch, std::move(kept)).second)
    throw UsageError(fmt::format("forward of microbatch {} twice without a backward", microbatch),
                     "a schedule that verify() accepts");
  return output;
}

Activation SequentialStage::run_whole(const Activation& leaf, const Tail& tail) {
  torch::nn::AnyValue value = leaf.value();
  for (Modules& modules : pieces_)
    for (auto& module : modules) value = module.any_forward(std::move(value));
  Activation output = Activation::from(std::move(value));
  return tail ? Activation(tail(output)) : output;
}

Activation SequentialStage::infer(const Activation& input) {
  const torch::NoGradGuard no_grad;
  return run_whole(input, {});
}

void SequentialStage::run(Kept& kept) {
  Activation leaf = detached(kept.input);
  for (const Tensor& tensor : leaf.tensors()) tensor.requires_grad_(!options_.first && tensor.is_floating_point());
  if (kept.backward == Backward::whole) {
    kept.pieces.push_back({.input = leaf, .output = run_whole(leaf, kept.tail)});
    return;
  }
  // region split_forward
  Piece piece{.input = leaf, .output = leaf};
  const auto cut_here = [&] {
    leaf =
        piece.output.map([](const Tensor& output) { return output.detach().requires_grad_(output.requires_grad()); });
    kept.pieces.push_back(std::exchange(piece, Piece{.input = leaf, .output = leaf}));
  };
  for (std::size_t i = 0; i < pieces_.size(); ++i) {
    if (i > 0) cut_here();
    const bool with_parameters = i > 0 || first_begins_with_parameters_;
    for (std::size_t j = 0; j < pieces_[i].size(); ++j) {
      // Of several outputs of a module, one may depend on another, so they are cut from what follows.
      if (j == 1 && piece.weighted.size() > 1) cut_here();
      piece.output = Activation::from(pieces_[i][j].any_forward(piece.output.value()));
      if (j > 0 || !with_parameters) continue;
      for (const Tensor& tensor : piece.output.tensors())
        if (tensor.requires_grad()) piece.weighted.push_back(edge_of(tensor));
    }
  }
  if (kept.tail) piece.output = kept.tail(piece.output);
  kept.pieces.push_back(std::move(piece));
  // endregion
}

void SequentialStage::run_again(Kept& kept) {
  if (!kept.generator.defined()) return run(kept);
  const Tensor now = generator_state();
  set_generator_state(kept.generator);
  run(kept);
  set_generator_state(now);
}

SequentialStage::Kept& SequentialStage::kept(int microbatch, const char* what) {
  const auto found = kept_.find(microbatch);
  if (found == kept_.end())
    throw UsageError(fmt::format("{} of microbatch {}, which had no forward", what, microbatch),
                     "a schedule that verify() accepts");
  if (found->second.pieces.empty()) run_again(found->second);
  return found->second;
}

// region whole
Activation SequentialStage::backward(int microbatch, const Activation& gradient) {
  Kept& state = kept(microbatch, "backward");
  if (state.backward == Backward::split) {
    Activation result = input_gradient(microbatch, gradient);
    weight_gradient(microbatch);
    return result;
  }
  const Piece piece = std::move(state.pieces.back());
  kept_.erase(microbatch);
  const Roots roots(piece.output, gradient);
  if (!roots.outputs.empty()) torch::autograd::backward(roots.outputs, roots.gradients);
  if (options_.first) return {};
  return piece.input.map([](const Tensor& leaf) { return leaf.grad(); });
}
// endregion

Activation SequentialStage::input_gradient(int microbatch, const Activation& gradient) {
  Kept& state = kept(microbatch, "input gradient");
  if (state.backward != Backward::split)
    throw UsageError(
        fmt::format("the backward of microbatch {} is split, but its forward was told otherwise", microbatch),
        "forward with Backward::split");
  // region input_gradient
  Activation passed = gradient;
  for (auto piece = state.pieces.rbegin(); piece != state.pieces.rend(); ++piece) {
    Roots roots(piece->output, passed);
    const bool ends_with_module = piece->weighted.size() > 1;  // then the gradients of its outputs are those that came
    std::vector<Edge> wanted;
    if (!ends_with_module) wanted = piece->weighted;
    const std::size_t weighted = wanted.size();
    for (const Tensor& leaf : piece->input.tensors())
      if (leaf.requires_grad()) wanted.push_back(edge_of(leaf));
    if (roots.outputs.empty() || (wanted.empty() && !ends_with_module)) return {};
    std::vector<Tensor> gradients;
    if (!wanted.empty()) gradients = gradients_at(wanted, roots.outputs, roots.gradients);
    auto next = gradients.begin() + static_cast<std::ptrdiff_t>(weighted);
    passed = piece->input.map([&](const Tensor& leaf) { return leaf.requires_grad() ? *next++ : Tensor(); });
    gradients.resize(weighted);
    piece->gradients = ends_with_module ? std::move(roots.gradients) : std::move(gradients);
    piece->output = {};  // frees what only I needed
    piece->input = {};
  }
  // endregion
  state.input = {};
  return options_.first ? Activation() : passed;
}

// region weight_gradient
void SequentialStage::weight_gradient(int microbatch) {
  const Kept state = std::move(kept(microbatch, "weight gradient"));
  kept_.erase(microbatch);
  std::vector<Edge> places;
  std::vector<Tensor> gradients;
  for (const Piece& piece : state.pieces)
    for (std::size_t i = 0; i < piece.gradients.size(); ++i)
      if (piece.gradients[i].defined()) {
        places.push_back(piece.weighted[i]);
        gradients.push_back(piece.gradients[i]);
      }
  if (places.empty() || parameters_.empty()) return;
  // No piece is connected with another, so this runs the modules with parameters and nothing between them.
  backward_from(places, gradients, parameters_);
}
// endregion

}  // namespace lockstep::pipeline
