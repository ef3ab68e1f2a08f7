#include "lockstep/model.h"

#include <fmt/format.h>

#include <memory>

#include "lockstep/error.h"
#include "lockstep/model/limits.h"
#include "lockstep/model/transformer_modules.h"

namespace lockstep::model {
namespace {

// The numbers of parameters, as doubles, because hostile sizes would overflow an integer.
struct Parameters {
  explicit Parameters(const TransformerSizes& s)
      : dim(static_cast<double>(s.dim)),
        embedding((static_cast<double>(s.vocabulary) + static_cast<double>(s.sequence)) * dim),
        block(12 * dim * dim + 13 * dim),
        output(2 * dim + (s.tied ? 0 : static_cast<double>(s.vocabulary) * dim)),
        all(embedding + static_cast<double>(s.depth) * block + output) {}

  double dim, embedding, block, output, all;
};

void check_sizes(const TransformerSizes& s) {
  check_size("dim", s.dim);
  check_size("depth", s.depth);
  check_size("heads", s.heads);
  check_size("vocabulary", s.vocabulary);
  check_size("sequence", s.sequence);
  check_depth(s.depth);
  if (s.dim % s.heads == 0) return;
  std::int64_t fewer = s.heads;
  while (s.dim % fewer != 0) --fewer;
  throw UsageError(fmt::format("{} heads do not divide dim {}", s.heads, s.dim),
                   fmt::format("heads {}, or dim {}", fewer, (s.dim / s.heads + 1) * s.heads));
}

}  // namespace

std::vector<Layer> transformer_layers(const TransformerSizes& s) {
  check_sizes(s);
  // Every rank makes every layer, also those that it then drops. So each must fit by itself.
  const Parameters count(s);
  check_fits(fmt::format("an embedding of vocabulary {}, sequence {} and dim {}", s.vocabulary, s.sequence, s.dim),
             count.embedding);
  check_fits(fmt::format("a block of dim {}", s.dim), count.block);

  const auto whole = [](double parameters) { return static_cast<std::int64_t>(parameters); };
  std::vector<Layer> layers;
  // The embedding leaves its weight here, and the output takes it, if they are tied.
  const auto tied = std::make_shared<torch::Tensor>();
  layers.push_back({whole(count.embedding), [s, tied] {
                      TransformerEmbedding embedding(s.vocabulary, s.sequence, s.dim);
                      if (s.tied) *tied = embedding->token->weight;
                      return torch::nn::AnyModule(embedding);
                    }});
  for (std::int64_t i = 0; i < s.depth; ++i)
    layers.push_back({whole(count.block), [s] { return torch::nn::AnyModule(TransformerBlock(s.dim, s.heads)); }});
  layers.push_back({whole(count.output), [s, tied] {
                      if (!s.tied) return torch::nn::AnyModule(TransformerOutput(s.vocabulary, s.dim));
                      if (!tied->defined())
                        throw UsageError("a tied output needs the weight of the embedding, which was not made yet",
                                         "the layers in their order");
                      return torch::nn::AnyModule(TransformerOutput(*tied));
                    }});
  return layers;
}

TransformerImpl::TransformerImpl(const TransformerSizes& sizes) {
  const std::vector<Layer> layers = transformer_layers(sizes);
  check_fits(
      fmt::format("a transformer of depth {}, dim {} and vocabulary {}", sizes.depth, sizes.dim, sizes.vocabulary),
      Parameters(sizes).all);
  for (const Layer& layer : layers) push_back(layer.make());
}

}  // namespace lockstep::model
