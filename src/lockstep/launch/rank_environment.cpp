#include "lockstep/launch/rank_environment.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace lockstep::launch {
namespace {

std::string name_of(const std::string& variable) { return variable.substr(0, variable.find('=')); }

// Whether a variable is set to a text that is not empty.
bool has(const std::vector<std::string>& variables, const std::string& name) {
  return std::any_of(variables.begin(), variables.end(), [&](const std::string& variable) {
    return variable.starts_with(name + "=") && variable.size() > name.size() + 1;
  });
}

}  // namespace

std::vector<std::string> rank_environment(const JobFacts& job, Rank rank, const std::vector<std::string>& inherited) {
  const std::string me = std::to_string(rank);
  const std::string world = std::to_string(job.ranks);
  std::map<std::string, std::string> own = {
      {"RANK", me},
      {"WORLD_SIZE", world},
      {"LOCAL_RANK", me},
      {"LOCAL_WORLD_SIZE", world},
      {"MASTER_ADDR", job.master_addr},
      {"MASTER_PORT", std::to_string(job.master_port)},
      // As torchrun sets them for one host and one role.
      {"GROUP_RANK", "0"},
      {"GROUP_WORLD_SIZE", "1"},
      {"ROLE_RANK", me},
      {"ROLE_WORLD_SIZE", world},
      {"ROLE_NAME", "default"},
      {"LOCKSTEP_STORE", job.store},
      {"LOCKSTEP_SECRET", job.secret},
      {"LOCKSTEP_LAUNCHER", std::to_string(job.launcher_pid)},
      {"LOCKSTEP_GENERATION", "0"},
  };
  if (!has(inherited, "OMP_NUM_THREADS")) own.emplace("OMP_NUM_THREADS", std::to_string(job.threads));
  // A rank writes to a pipe, where Python would otherwise buffer its output.
  if (!has(inherited, "PYTHONUNBUFFERED")) own.emplace("PYTHONUNBUFFERED", "1");

  std::vector<std::string> environment;
  // LOCKSTEP_SECRET_FILE is left out, because ranks use the launcher's own secret.
  for (const std::string& variable : inherited)
    if (!own.contains(name_of(variable)) && name_of(variable) != "LOCKSTEP_SECRET_FILE")
      environment.push_back(variable);
  for (const auto& [name, value] : own) environment.push_back(fmt::format("{}={}", name, value));
  return environment;
}

}  // namespace lockstep::launch
