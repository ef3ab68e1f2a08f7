// What is made of the result of a training run: the document that `lockstep train --json` prints, and a warning.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/training.h"

namespace lockstep::train {

nlohmann::json document(const Result& result);

// Returns a sentence that says what is wrong with the course of the losses: one is not finite or much larger than the
// first, or they rose again and stayed there. Returns nothing otherwise. `losses_every` is explained in Result.
std::optional<std::string> trouble_with(const std::vector<double>& losses, std::int64_t losses_every = 1);

}  // namespace lockstep::train
