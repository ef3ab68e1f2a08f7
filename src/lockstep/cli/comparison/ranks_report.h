// What `lockstep compare ranks` prints, from its document.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace lockstep::cli::comparison {

// The table, and what it means, in lines of at most 80 columns.
std::string describe_ranks(const nlohmann::json& document);

// True if all sides trained the same: every loss agrees to 3 digits, and the ranks ended with equal weights. float32
// sums in another order differ in the seventh digit, and each step of training multiplies that.
bool losses_agree(const nlohmann::json& document);

}  // namespace lockstep::cli::comparison
