// `lockstep completion SHELL`: prints a script for the shell. The script asks `lockstep help VERB` for the flags of a
// verb, so flags are listed only in the help text.
#include <fmt/core.h>

#include "lockstep/cli/commands.h"
#include "lockstep/cli/flags.h"
#include "lockstep/error.h"

namespace lockstep::cli {
namespace {

constexpr const char* kHelp = R"~(Examples:
  source <(lockstep completion bash)                          in ~/.bashrc
  source <(lockstep completion zsh)                           in ~/.zshrc, after compinit
  lockstep completion fish > ~/.config/fish/completions/lockstep.fish

Prints a script with which the shell completes the verbs and flags of lockstep.

Usage: lockstep completion bash|zsh|fish
)~";

// A function that all three shells use: it prints the words that may come next. Its arguments are the program and the
// complete words after it. In a help text, a flag stands after two spaces at the start of a line; a verb also stands
// there, and two spaces follow it.
constexpr const char* kWords = R"~(_lockstep_words() {
  local program=$1
  shift
  case "$#-$1" in
    0-*) "$program" --help | sed -n 's/^  \([a-z]*\)  .*/\1/p' ; echo help ;;
    1-help) "$program" --help | sed -n 's/^  \([a-z]*\)  .*/\1/p' ;;
    *-bench) echo all_reduce reduce broadcast scatter gather all_gather reduce_scatter all_to_all barrier p2p ;;
    1-compare) echo allreduce hooks overlap buckets ranks schedules ;;
    *-completion) echo bash zsh fish ;;
  esac
  case "$1" in
    '' | help | completion) ;;
    compare) [ -n "$2" ] && "$program" help "$1" "$2" 2>/dev/null | sed -n 's/^  \(-[^ ,]*\(, -[^ ,]*\)*\) .*/\1/p' | tr -d , ;;
    *) "$program" help "$1" 2>/dev/null | sed -n 's/^  \(-[^ ,]*\(, -[^ ,]*\)*\) .*/\1/p' | tr -d , ;;
  esac
}
)~";

constexpr const char* kBash = R"~(_lockstep() {
  local done=("${COMP_WORDS[@]:1:COMP_CWORD-1}")
  COMPREPLY=($(compgen -W "$(_lockstep_words "${COMP_WORDS[0]}" "${done[@]}")" -- "${COMP_WORDS[COMP_CWORD]}"))
}
complete -o default -F _lockstep lockstep
)~";

constexpr const char* kZsh = R"~(_lockstep() {
  local -a found
  found=(${=$(_lockstep_words "${words[1]}" "${(@)words[2,CURRENT-1]}")})
  compadd -a found
  _files
}
compdef _lockstep lockstep
)~";

// fish has another syntax for functions, so its script runs the shared part in sh.
constexpr const char* kFish = R"~(function __lockstep_words
  set -l done (commandline -opc)
  sh -c '%s' _ $done
end
complete -c lockstep -a '(__lockstep_words | string split " ")'
)~";

std::string script_for(const std::string& shell) {
  if (shell == "bash") return fmt::format("{}{}", kWords, kBash);
  if (shell == "zsh") return fmt::format("{}{}", kWords, kZsh);
  const std::string in_sh = fmt::format("{}_lockstep_words \"$@\"", kWords);
  std::string quoted;
  for (const char c : in_sh) quoted += c == '\'' || c == '\\' ? std::string("\\") + c : std::string(1, c);
  std::string text = kFish;
  return text.replace(text.find("%s"), 2, quoted);
}

}  // namespace

int completion(std::span<const std::string> arguments) {
  if (asks_for_help(arguments)) {
    fmt::print("{}", kHelp);
    return kExitOk;
  }
  if (arguments.size() != 1 || (arguments[0] != "bash" && arguments[0] != "zsh" && arguments[0] != "fish"))
    throw UsageError("the name of a shell is needed", "lockstep completion bash, zsh or fish");
  fmt::print("{}", script_for(arguments[0]));
  return kExitOk;
}

}  // namespace lockstep::cli
