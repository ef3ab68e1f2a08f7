// What `lockstep compare ranks` prints, made from its document.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace lockstep::cli::comparison {

// The table and its meaning, in lines of at most 80 columns.
std::string describe_ranks(const nlohmann::json& document);

// True if all sides trained the same model: the losses before and after the first update agree to 4 digits, and the
// ranks ended with equal weights. Later losses may drift apart: float32 sums in another order differ in the seventh
// digit, and a deep network amplifies that with every step.
bool sides_agree(const nlohmann::json& document);

}  // namespace lockstep::cli::comparison
