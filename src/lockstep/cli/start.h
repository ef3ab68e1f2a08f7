// How a verb comes by its ranks: it starts itself as often as it needs, or it is one of the ranks already.
#pragma once

#include <string>
#include <vector>

namespace lockstep::cli {

struct Outcome {
  int exit_code = 0;   // of the ranks; when it is not 0, the document may be missing
  std::string result;  // what rank 0 wrote to its --result
};

// Starts `ranks` of a command, and --result, and waits for them. What they print goes to the console with their rank in
// front, as under `lockstep run`; the result does not.
Outcome start_ranks(int ranks, std::vector<std::string> command);

// The file of this program.
std::string this_program();

// The file of lockstep-torch, which lies beside it. A UsageError that names the verb when it was not built.
std::string torch_program(const std::string& verb);

// True when a launcher has made this process a rank of a world.
bool is_rank();

}  // namespace lockstep::cli
