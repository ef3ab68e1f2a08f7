#include "lockstep/model/transformer_modules.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "lockstep/error.h"

namespace lockstep::model {

using torch::Tensor;
using torch::nn::Embedding, torch::nn::LayerNorm, torch::nn::LayerNormOptions, torch::nn::Linear,
    torch::nn::LinearOptions;

namespace {

// One kernel for the product and the bias, as in Python. LinearImpl::forward() takes two if the input has three
// dimensions, and then rounds differently.
Tensor linear(const Linear& layer, const Tensor& x) { return torch::linear(x, layer->weight, layer->bias); }

}  // namespace

TransformerEmbeddingImpl::TransformerEmbeddingImpl(std::int64_t vocabulary, std::int64_t sequence, std::int64_t dim)
    : token(register_module("token", Embedding(vocabulary, dim))),
      position(register_module("position", Embedding(sequence, dim))) {
  const torch::NoGradGuard no_grad;
  for (const Tensor& vectors : parameters()) vectors.mul_(1 / std::sqrt(static_cast<double>(dim)));
}

Tensor TransformerEmbeddingImpl::forward(const Tensor& tokens) {
  const std::int64_t length = tokens.size(1), positions = position->weight.size(0);
  if (length > positions)
    throw UsageError(fmt::format("{} tokens in a row, and the transformer has {} positions", length, positions),
                     "shorter rows, or a longer sequence");
  return token->forward(tokens) + position->weight.narrow(0, 0, length);
}

TransformerBlockImpl::TransformerBlockImpl(std::int64_t dim, std::int64_t heads)
    : attention_norm(register_module("attention_norm", LayerNorm(LayerNormOptions({dim})))),
      qkv(register_module("qkv", Linear(dim, 3 * dim))),
      projection(register_module("projection", Linear(dim, dim))),
      mlp_norm(register_module("mlp_norm", LayerNorm(LayerNormOptions({dim})))),
      up(register_module("up", Linear(dim, 4 * dim))),
      down(register_module("down", Linear(4 * dim, dim))),
      heads_(heads) {}

// Written out, because libtorch 1.13 has no scaled_dot_product_attention.
Tensor TransformerBlockImpl::attention(const Tensor& x) {
  const std::int64_t rows = x.size(0), length = x.size(1), dim = x.size(2), width = dim / heads_;
  const Tensor all = linear(qkv, x).reshape({rows, length, 3, heads_, width}).permute({2, 0, 3, 1, 4});
  // Each is [rows, head, length, width].
  const Tensor query = all.select(0, 0), key = all.select(0, 1), value = all.select(0, 2);
  const Tensor later = torch::ones({length, length}, torch::kBool).triu(1);
  const Tensor scores = torch::matmul(query, key.transpose(2, 3)) / std::sqrt(static_cast<double>(width));
  const Tensor shares = scores.masked_fill(later, -std::numeric_limits<double>::infinity()).softmax(3);
  return linear(projection, torch::matmul(shares, value).transpose(1, 2).reshape({rows, length, dim}));
}

Tensor TransformerBlockImpl::forward(const Tensor& x) {
  const Tensor attended = x + attention(attention_norm->forward(x));
  return attended + linear(down, torch::gelu(linear(up, mlp_norm->forward(attended))));
}

TransformerOutputImpl::TransformerOutputImpl(std::int64_t vocabulary, std::int64_t dim)
    : TransformerOutputImpl(Linear(LinearOptions(dim, vocabulary).bias(false))->weight) {}

TransformerOutputImpl::TransformerOutputImpl(const Tensor& tied)
    : norm(register_module("norm", LayerNorm(LayerNormOptions({tied.size(1)})))),
      weight(register_parameter("weight", tied)) {}

Tensor TransformerOutputImpl::forward(const Tensor& x) { return torch::linear(norm->forward(x), weight); }

}  // namespace lockstep::model
