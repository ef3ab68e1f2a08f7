// How a verb comes by its ranks: it starts itself as often as it needs, or it is one of the ranks already.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>

namespace lockstep::cli::benchmark {

struct Outcome {
  int exit_code = 0;   // of the ranks; when it is not 0 there is no document
  std::string result;  // what rank 0 wrote to its --result
};

// Starts `ranks` of this program with these arguments, and --result, and waits for them. What they print goes to the
// console with their rank in front, as under `lockstep run`; the result does not.
Outcome start_ranks(int ranks, std::span<const std::string> arguments);

// True when a launcher has made this process a rank of a world.
bool is_rank();

}  // namespace lockstep::cli::benchmark
