// The modules of which a Transformer consists (lockstep/model.h).
//
// Each draws its weights from torch's default generator when it is made, as Python's modules of the same names do, in
// the order in which its members stand here.
#pragma once

#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/nn/pimpl.h>

#include <cstdint>

namespace lockstep::model {

// Tokens [rows, length] become vectors [rows, length, dim]: the sum of the token's vector and its position's vector.
// The vectors are drawn with a standard deviation of 1/sqrt(dim).
struct TransformerEmbeddingImpl : torch::nn::Module {
  TransformerEmbeddingImpl(std::int64_t vocabulary, std::int64_t sequence, std::int64_t dim);
  // Throws UsageError if there are more tokens in a row than positions.
  torch::Tensor forward(const torch::Tensor& tokens);

  torch::nn::Embedding token{nullptr}, position{nullptr};
};
TORCH_MODULE(TransformerEmbedding);

// One block, with the norms before what they are for: x + attention(norm(x)), and then x + MLP(norm(x)). Takes and
// returns [rows, length, dim]. A position sees itself and the positions before it. `dim` must be a multiple of `heads`.
struct TransformerBlockImpl : torch::nn::Module {
  TransformerBlockImpl(std::int64_t dim, std::int64_t heads);
  torch::Tensor forward(const torch::Tensor& x);

  torch::nn::LayerNorm attention_norm{nullptr};
  torch::nn::Linear qkv{nullptr}, projection{nullptr};  // queries, keys and values of all heads; the heads' outputs
  torch::nn::LayerNorm mlp_norm{nullptr};
  torch::nn::Linear up{nullptr}, down{nullptr};  // to 4 * dim, and back

 private:
  torch::Tensor attention(const torch::Tensor& x);

  std::int64_t heads_;
};
TORCH_MODULE(TransformerBlock);

// Vectors [rows, length, dim] become scores of all tokens [rows, length, vocabulary]: a norm, then the product with
// `weight` [vocabulary, dim].
struct TransformerOutputImpl : torch::nn::Module {
  // With a weight of its own, drawn as that of a Linear layer.
  TransformerOutputImpl(std::int64_t vocabulary, std::int64_t dim);
  // Tied: with the weight of an embedding's tokens, which becomes a parameter of both modules.
  explicit TransformerOutputImpl(const torch::Tensor& tied);
  torch::Tensor forward(const torch::Tensor& x);

  torch::nn::LayerNorm norm{nullptr};
  torch::Tensor weight;
};
TORCH_MODULE(TransformerOutput);

}  // namespace lockstep::model
