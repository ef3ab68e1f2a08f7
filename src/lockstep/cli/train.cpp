// `lockstep train`: checks its arguments, and then starts the ranks or becomes one of them.
//
// The ranks run another program, lockstep-torch, which lies beside this one: libtorch takes half a second to load and
// starts threads, and the other verbs need neither.
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <nlohmann/json.hpp>

#include "lockstep/base/fd.h"
#include "lockstep/cli/commands.h"
#include "lockstep/cli/flags.h"
#include "lockstep/cli/start.h"
#include "lockstep/cli/training/options.h"
#include "lockstep/cli/training/report.h"
#include "lockstep/error.h"
#include "lockstep/rendezvous/identity.h"

namespace lockstep::cli {
namespace {

[[noreturn]] void become(const std::vector<std::string>& command) {
  std::vector<char*> words;
  for (const std::string& word : command) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  ::execv(words[0], words.data());
  throw SystemError(errno, fmt::format("can't start {}", command[0]));
}

}  // namespace

int train(std::span<const std::string> arguments) {
  if (asks_for_help(arguments)) {
    fmt::print("{}", training::help());
    return kExitOk;
  }
  const bool rank = is_rank();
  const auto options = training::parse(arguments, rank ? rendezvous::identity_from_environment().size : 0);
  std::vector<std::string> command{torch_program("train"), "train"};
  command.insert(command.end(), arguments.begin(), arguments.end());
  if (rank || options.config.ranks == 1) become(command);
  // Rank 0 draws its progress bar on our terminal. It can't use its own stderr, because what a rank writes there gets
  // the rank's number in front.
  const Fd terminal(::dup(STDERR_FILENO));
  command.insert(command.end(), {"--progress-fd", std::to_string(terminal.get())});
  const Outcome outcome = start_ranks(options.config.ranks, command);
  // A run that failed at its very end, because a file could not be written, still has a result.
  const auto document = nlohmann::json::parse(outcome.result, nullptr, false);
  if (document.is_discarded()) return outcome.exit_code;
  const int shown = training::show(document, options);
  if (outcome.exit_code != kExitOk) return outcome.exit_code;
  if (!document.contains("error")) training::say_files(options.config);
  return shown;
}

}  // namespace lockstep::cli
