#include "lockstep/parallel/pipeline/stage.h"

#include <ATen/CPUGeneratorImpl.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/autograd.h>

#include <mutex>

#include "lockstep/base/error.h"

namespace lockstep::pipeline {
namespace {

using torch::Tensor;

Tensor generator_state() {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard lock(generator.mutex());
  return generator.get_state();
}

void set_generator_state(const Tensor& state) {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard lock(generator.mutex());
  generator.set_state(state);
}

std::vector<Tensor> one_or_none(const Tensor& tensor) {
  return tensor.defined() ? std::vector<Tensor>{tensor} : std::vector<Tensor>{};
}

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

Tensor SequentialStage::forward(int microbatch, const Tensor& input, Backward backward, const Tail& tail) {
  Kept kept{.input = input.detach(), .tail = tail, .backward = backward, .generator = {}, .pieces = {}};
  Tensor output;
  if (options_.recompute) {
    const torch::NoGradGuard no_grad;
    const Tensor before = generator_state();
    output = run_whole(kept.input, tail);
    if (!torch::equal(before, generator_state())) kept.generator = before;
  } else {
    run(kept);
    output = kept.pieces.back().output.detach();
  }
  if (!kept_.emplace(microbatch, std::move(kept)).second)
    throw UsageError(fmt::format("forward of microbatch {} twice without a backward", microbatch),
                     "a schedule that verify() accepts");
  return output;
}

Tensor SequentialStage::run_whole(const Tensor& leaf, const Tail& tail) {
  Tensor value = leaf;
  for (Modules& modules : pieces_)
    for (auto& module : modules) value = module.forward(value);
  return tail ? tail(value) : value;
}

Tensor SequentialStage::infer(const Tensor& input) {
  const torch::NoGradGuard no_grad;
  return run_whole(input, {});
}

void SequentialStage::run(Kept& kept) {
  Tensor leaf = kept.input.detach();
  leaf.requires_grad_(!options_.first && leaf.is_floating_point());
  if (kept.backward == Backward::whole) {
    kept.pieces.push_back({.input = leaf, .weighted = {}, .output = run_whole(leaf, kept.tail), .gradient = {}});
    return;
  }
  // region split_forward
  for (std::size_t i = 0; i < pieces_.size(); ++i) {
    Piece piece{.input = leaf, .weighted = {}, .output = leaf, .gradient = {}};
    const bool with_parameters = i > 0 || first_begins_with_parameters_;
    for (std::size_t j = 0; j < pieces_[i].size(); ++j) {
      piece.output = pieces_[i][j].forward(piece.output);
      if (j == 0 && with_parameters && piece.output.requires_grad()) piece.weighted = edge_of(piece.output);
    }
    if (i + 1 == pieces_.size() && kept.tail) piece.output = kept.tail(piece.output);
    leaf = piece.output.detach().requires_grad_(piece.output.requires_grad());
    kept.pieces.push_back(std::move(piece));
  }
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
Tensor SequentialStage::backward(int microbatch, const Tensor& gradient) {
  Kept& state = kept(microbatch, "backward");
  if (state.backward == Backward::split) {
    Tensor result = input_gradient(microbatch, gradient);
    weight_gradient(microbatch);
    return result;
  }
  const Piece piece = std::move(state.pieces.back());
  kept_.erase(microbatch);
  if (piece.output.requires_grad()) torch::autograd::backward({piece.output}, one_or_none(gradient));
  return piece.input.grad();
}
// endregion

Tensor SequentialStage::input_gradient(int microbatch, const Tensor& gradient) {
  Kept& state = kept(microbatch, "input gradient");
  if (state.backward != Backward::split)
    throw UsageError(
        fmt::format("the backward of microbatch {} is split, but its forward was told otherwise", microbatch),
        "forward with Backward::split");
  // region input_gradient
  Tensor passed = gradient;
  for (auto piece = state.pieces.rbegin(); piece != state.pieces.rend(); ++piece) {
    std::vector<Edge> wanted;
    const bool weighted = piece->weighted.is_valid();
    if (weighted) wanted.push_back(piece->weighted);
    if (piece->input.requires_grad()) wanted.push_back(edge_of(piece->input));
    if (wanted.empty()) return {};
    std::vector<Tensor> gradients = gradients_at(wanted, piece->output, passed);
    if (weighted) piece->gradient = gradients.front();
    passed = piece->input.requires_grad() ? gradients.back() : Tensor();
    piece->output.reset();  // frees what only I needed
    piece->input.reset();
  }
  // endregion
  state.input.reset();
  return passed;
}

// region weight_gradient
void SequentialStage::weight_gradient(int microbatch) {
  const Kept state = std::move(kept(microbatch, "weight gradient"));
  kept_.erase(microbatch);
  std::vector<Edge> places;
  std::vector<Tensor> gradients;
  for (const Piece& piece : state.pieces)
    if (piece.gradient.defined()) {
      places.push_back(piece.weighted);
      gradients.push_back(piece.gradient);
    }
  if (places.empty() || parameters_.empty()) return;
  // No piece is connected with another, so this runs the modules with parameters and nothing between them.
  backward_from(places, gradients, parameters_);
}
// endregion

}  // namespace lockstep::pipeline
