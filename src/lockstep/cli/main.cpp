#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "lockstep/base/environment.h"
#include "lockstep/base/suggest.h"
#include "lockstep/cli/commands.h"
#include "lockstep/cli/diagnosis/libtorch.h"
#include "lockstep/cli/guarded.h"
#include "lockstep/error.h"

namespace lockstep::cli {
namespace {

struct Command {
  const char* name;
  const char* summary;
  int (*function)(std::span<const std::string> arguments);
};

constexpr Command kCommands[] = {
    {"run", "start ranks of any program and watch them", run},
    {"doctor", "what is here: cores, memory, BLAS, transports, and whether they work", doctor},
    {"train", "train a model with any strategy, from one process to pipelines", train},
    {"bench", "time a collective, in nccl-tests' columns, beside what the machine allows", bench},
    {"compare", "ways of doing the same thing, timed side by side", compare},
    {"plan", "what an algorithm does, step by step, as text or as a picture", plan},
    {"schedule", "draw a pipeline schedule, and prove that it can run", schedule},
    {"completion", "a script that completes verbs and flags in bash, zsh or fish", completion},
};

constexpr const char* kExamples = R"(Examples:
  lockstep run -n 4 ./train                        four ranks of a program on this host
  lockstep run -n 2 -- python3 train.py            ranks of a PyTorch script
  lockstep doctor                                  what this machine has, and whether it works
  lockstep train --strategy ddp --ranks 4          train a model on four ranks, and see where the time goes
  lockstep bench all_reduce --size 100M --ranks 4  how fast is a collective, and is it right
  lockstep compare allreduce --svg allreduce.svg   which algorithm is fastest at which size, and why
  lockstep schedule 1f1b --stages 4                a pipeline schedule, its bubble, and whether it can deadlock
  lockstep help run                                all about one verb

Distributed training from first principles.

Usage: lockstep VERB [arguments]

)";

void print_help() {
  fmt::print("{}", kExamples);
  for (const Command& command : kCommands) fmt::print("  {:<12}{}\n", command.name, command.summary);
  fmt::print("\n  --version   the version, and which libtorch and BLAS it uses\n  --help      this text\n");
}

[[noreturn]] void throw_unknown(const std::string& verb) {
  std::vector<std::string> verbs;
  for (const Command& command : kCommands) verbs.emplace_back(command.name);
  const auto near = closest(verb, verbs);
  throw UsageError(fmt::format("there is no verb '{}'", verb), near ? "lockstep " + *near : "lockstep --help");
}

int help_on(std::span<const std::string> verb);

int dispatch(std::span<const std::string> words) {
  if (words.empty() || words[0] == "--help" || words[0] == "-h" || words[0] == "help") {
    if (words.size() > 1 && words[0] == "help") return help_on(words.subspan(1));
    print_help();
    return kExitOk;
  }
  check_variables();
  if (words[0] == "--version") {
    fmt::print("lockstep {}\n", LOCKSTEP_VERSION);
    for (const diagnosis::Finding& finding : diagnosis::libtorch())
      fmt::print("{}: {}{}\n", finding.name, finding.value, finding.advice.empty() ? "" : "; " + finding.advice);
    return kExitOk;
  }
  for (const Command& command : kCommands)
    if (words[0] == command.name) return command.function(words.subspan(1));
  throw_unknown(words[0]);
}

// `lockstep help compare ranks` is `lockstep compare ranks --help`.
int help_on(std::span<const std::string> verb) {
  std::vector<std::string> words(verb.begin(), verb.end());
  words.emplace_back("--help");
  return dispatch(words);
}

// If descriptor 0, 1 or 2 is closed at the start, the next file that we open would get its number, and the output for
// the user would go into that file.
void open_standard_descriptors() {
  int fd = 0;
  do fd = ::open("/dev/null", O_RDWR);
  while (fd >= 0 && fd <= STDERR_FILENO);
  if (fd > STDERR_FILENO) ::close(fd);
}

}  // namespace
}  // namespace lockstep::cli

int main(int argc, char** argv) {
  using namespace lockstep;
  cli::open_standard_descriptors();
  const std::vector<std::string> words(argv + 1, argv + std::max(argc, 1));
  const std::string name = words.empty() || words[0].starts_with('-') ? "lockstep" : "lockstep " + words[0];
  return cli::guarded(name, [&] { return cli::dispatch(words); });
}
