// How a verb gets its ranks: it starts them itself, or it already is one of them.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace lockstep::cli {

struct Outcome {
  int exit_code = 0;   // exit code of the ranks; if it is not 0, the result may be missing
  std::string result;  // what rank 0 wrote to the file of its --result flag
};

// Starts `ranks` ranks of a command, with a --result flag at its end, and waits for them. What they print goes to the
// console with their rank in front, as under `lockstep run`; the result does not.
Outcome start_ranks(int ranks, std::vector<std::string> command);

// Called by rank 0 with the file of its --result flag: passes the document to the process that started the ranks.
void write_result(const std::string& path, const nlohmann::json& document);

// The path of this program.
std::string this_program();

// The path of lockstep-torch, which lies beside this program. Throws UsageError, which names the verb, if it was not
// built.
std::string torch_program(const std::string& verb);

// True if a launcher has made this process a rank of a world.
bool is_rank();

}  // namespace lockstep::cli
