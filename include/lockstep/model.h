// The models that Lockstep trains, as torch modules and as lists of layers that are made one at a time.
#pragma once

#include <torch/nn/modules/container/any.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/pimpl.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "lockstep/kinds.h"

namespace lockstep::model {

// --- whole models ---

// FullMLP: a plain multilayer perceptron.
// `depth` times Linear(dim, dim) and ReLU, then Linear(dim, outputs).
//
// Weights are drawn from torch's default generator, layer by layer, as Python's nn.Sequential of the same layers draws
// them, and parameters have the names that they have there (0.weight, 0.bias, 2.weight, ...). Throws UsageError if a
// size is below 1, if `depth` is too large, or if the weights do not fit in this machine's memory.
struct FullMLPImpl : torch::nn::SequentialImpl {
  FullMLPImpl(std::int64_t dim, std::int64_t depth, std::int64_t outputs = 2);
};
TORCH_MODULE(FullMLP);

// SimpleCNN: a small network for small images.
// For each entry of `channels` a 3x3 convolution with padding 1, ReLU and a 2x2 max-pool, which halves the image's
// side; then flatten, Linear to `hidden`, ReLU, Linear to `classes`. Takes inputs of shape [rows, 1, side, side].
//
// Weights are drawn and parameters are named as in FullMLP. Throws UsageError if a size is below 1, if the
// image's side becomes 0 because `channels` has too many entries, or if the weights do not fit in this machine's
// memory.
struct SimpleCNNImpl : torch::nn::SequentialImpl {
  explicit SimpleCNNImpl(const std::vector<std::int64_t>& channels = {32, 64}, std::int64_t hidden = 512,
                         std::int64_t classes = 10, std::int64_t image_side = 28);
};
TORCH_MODULE(SimpleCNN);

// A TransformerEmbedding, `depth` TransformerBlocks and a TransformerOutput. Takes tokens
// [rows, length] of type int64, each below `vocabulary`, with a length of at most `sequence`, and returns scores
// [rows, length, vocabulary]. The scores at a position depend on the tokens up to that position only. There is no
// dropout.
//
// Weights are drawn from torch's default generator, module by module, in an order that Python can repeat
// (tests/oracles/transformer.py). Parameters have names such as 0.token.weight, 1.qkv.weight and, in a model of depth
// 4, 5.weight. If the weights are tied, 0.token.weight and the last module's weight are one tensor with two names.
// Throws UsageError if a size is below 1, if `heads` does not divide `dim`, if `depth` is too large, or if the weights
// do not fit in this machine's memory.
struct TransformerImpl : torch::nn::SequentialImpl {
  explicit TransformerImpl(const TransformerSizes& sizes = {});
};
TORCH_MODULE(Transformer);

// Weights are drawn from torch's default generator: after the same torch::manual_seed they are the same as in Python.
// Throws UsageError if a size is impossible; the text names it.
torch::nn::Sequential make_model(const ModelConfig& config);

struct Size {
  std::int64_t parameters;     // number of elements, including those of frozen parameters
  std::size_t gradient_bytes;  // bytes of the parameters that get a gradient
};

// The size of any module. A tensor that has two names counts once.
Size size_of(const torch::nn::Module& module);

// --- lists of layers ---
//
// A model as the list of its modules, before any of them is made. So a rank can make only the modules that it needs,
// and the cost of a module is known without making it.

struct Layer {
  static constexpr std::int64_t kUnknown = -1;

  // Number of elements, without those of an earlier layer that this one shares. kUnknown: the layer is made once to
  // count them.
  std::int64_t parameters = kUnknown;
  std::function<torch::nn::AnyModule()> make;  // draws its weights from torch's default generator
};

// The layers in the order of the model's Sequential, where layer i has the name "i". Throw UsageError if a size is
// below 1, if `depth` is too large, if the image's side becomes 0 because `channels` has too many entries, if `heads`
// does not divide `dim`, or if a single layer of a transformer does not fit in this machine's memory. The last layer of
// a transformer with tied weights shares the weight of the first one that was made most recently.
std::vector<Layer> mlp_layers(std::int64_t dim, std::int64_t depth, std::int64_t outputs);
std::vector<Layer> cnn_layers(const std::vector<std::int64_t>& channels, std::int64_t hidden, std::int64_t classes,
                              std::int64_t image_side);
std::vector<Layer> transformer_layers(const TransformerSizes& sizes);

// The layers of the model that make_model makes. Throws UsageError in the cases above.
std::vector<Layer> layers_of(const ModelConfig& config);

// The size of the model that has these layers.
Size size_of(std::span<const Layer> layers);

}  // namespace lockstep::model
