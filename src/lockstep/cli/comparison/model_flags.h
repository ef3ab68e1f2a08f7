// The model of a comparison: its flags, and how it is described.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "lockstep/cli/flags.h"
#include "lockstep/kinds.h"

namespace lockstep::cli::comparison {

// --model and the flags of the models' sizes. The defaults that the help shows are those of `model`, which must outlive
// the flags. Widths of at most `most` are accepted.
std::vector<Flag> model_flags(model::ModelConfig& model, std::int64_t most = 1 << 24);

// The same model as flags of `lockstep train`.
std::vector<std::string> train_flags(const model::ModelConfig& model);

// The fields that say which model was trained.
nlohmann::json model_fields(const model::ModelConfig& model);

// How the model of a document is called in a text: "MLP 16 x 512".
std::string model_title(const nlohmann::json& document);

}  // namespace lockstep::cli::comparison
