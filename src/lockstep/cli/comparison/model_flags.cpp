#include "lockstep/cli/comparison/model_flags.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "lockstep/base/environment.h"
#include "lockstep/cli/choices.h"
#include "lockstep/training.h"

namespace lockstep::cli::comparison {

using model::ModelConfig, model::ModelKind;
using nlohmann::json;

std::vector<Flag> model_flags(ModelConfig& m, std::int64_t most) {
  using S = const std::string&;
  constexpr std::int64_t kMost = 1 << 24;
  model::TransformerSizes& t = m.transformer;
  const auto count = [](std::int64_t& place) { return [&place](S n, S v) { place = parse_int(n, v, 1, kMost); }; };
  return {
      {{"--model"}, "NAME", choices(model::kModels, m.kind), [&m](S, S v) { m.kind = model::kModels.parse(v); }},
      {{"--dim"},
       "N",
       fmt::format("width of the mlp or transformer; default {} or {}", m.dim, t.dim),
       [&m, most](S n, S v) { m.dim = m.transformer.dim = parse_int(n, v, 1, most); }},
      {{"--depth"},
       "N",
       fmt::format("layers of the mlp before the last, or blocks of the transformer; default {} or {}", m.depth,
                   t.depth),
       [&m](S n, S v) { m.depth = m.transformer.depth = parse_int(n, v, 1, kMost); }},
      {{"--heads"}, "N", fmt::format("transformer: heads of each attention; default {}", t.heads), count(t.heads)},
      {{"--vocabulary"},
       "N",
       fmt::format("transformer: number of different tokens; default {}", t.vocabulary),
       count(t.vocabulary)},
      {{"--sequence"}, "N", fmt::format("transformer: tokens in a row; default {}", t.sequence), count(t.sequence)},
  };
}

std::vector<std::string> train_flags(const ModelConfig& m) {
  const model::TransformerSizes& t = m.transformer;
  const auto size = [](std::int64_t value) { return std::to_string(value); };
  std::vector<std::string> words{"--model", name_of(m.kind)};
  if (m.kind == ModelKind::mlp) words.insert(words.end(), {"--dim", size(m.dim), "--depth", size(m.depth)});
  if (m.kind == ModelKind::transformer)
    words.insert(words.end(), {"--dim", size(t.dim), "--depth", size(t.depth), "--heads", size(t.heads), "--vocabulary",
                               size(t.vocabulary), "--sequence", size(t.sequence)});
  return words;
}

json model_fields(const ModelConfig& m) {
  json fields = {{"model", name_of(m.kind)}, {"model_name", train::describe(m)}};
  if (m.kind == ModelKind::mlp) fields.update({{"dim", m.dim}, {"depth", m.depth}});
  if (m.kind == ModelKind::transformer) fields.update({{"dim", m.transformer.dim}, {"depth", m.transformer.depth}});
  return fields;
}

std::string model_title(const json& d) {
  if (model::kModels.parse(d["model"].get<std::string>()) != ModelKind::mlp) return d["model_name"];
  return fmt::format("MLP {} x {}", d["depth"].get<std::int64_t>(), d["dim"].get<std::int64_t>());
}

}  // namespace lockstep::cli::comparison
