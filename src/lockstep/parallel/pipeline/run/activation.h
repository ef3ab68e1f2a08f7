// What travels between two stages of a pipeline: one tensor, or several.
//
// The modules of a Sequential may pass on a Tensor, a std::tuple of two to four Tensors, or a std::vector of Tensors. A
// stage must give the next one what the whole network would have given it, so an activation remembers which of these it
// was. The gradient of an activation has the same form, with an undefined tensor where there is no gradient, for
// example that of an integer mask.
#pragma once

#include <torch/nn/modules/container/any.h>
#include <torch/types.h>

#include <cstdint>
#include <utility>
#include <vector>

namespace lockstep::pipeline {

class Activation {
 public:
  enum class Form : std::int64_t { tensor, tuple, list };
  static constexpr std::size_t kMostInTuple = 4;

  Activation() = default;
  // NOLINTNEXTLINE: implicit on purpose, because most activations are one tensor
  Activation(torch::Tensor tensor) {
    if (tensor.defined()) tensors_.push_back(std::move(tensor));
  }
  Activation(Form form, std::vector<torch::Tensor> tensors) : form_(form), tensors_(std::move(tensors)) {}

  // What a module returned. Throws UsageError if its type can't travel between ranks.
  static Activation from(torch::nn::AnyValue value);
  // What a module takes.
  torch::nn::AnyValue value() const;

  // The only tensor; undefined if there is none. Throws UsageError if there are several.
  torch::Tensor tensor() const;
  operator torch::Tensor() const { return tensor(); }  // NOLINT: the counterpart of the constructor

  Form form() const { return form_; }
  const std::vector<torch::Tensor>& tensors() const { return tensors_; }
  bool defined() const { return !tensors_.empty(); }

  // An activation of the same form, with function(tensor) for each tensor.
  template <typename Function>
  Activation map(const Function& function) const {
    Activation result(form_, {});
    for (const torch::Tensor& tensor : tensors_) result.tensors_.push_back(function(tensor));
    return result;
  }

 private:
  Form form_ = Form::tensor;
  std::vector<torch::Tensor> tensors_;
};

}  // namespace lockstep::pipeline
