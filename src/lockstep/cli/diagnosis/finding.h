// One line of `lockstep doctor`.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <utility>

namespace lockstep::cli::diagnosis {

enum class Verdict { ok, note, bad };

struct Finding {
  std::string name;
  Verdict verdict = Verdict::ok;
  std::string value;
  std::string advice;  // what to do, when something is amiss
  nlohmann::json detail = nlohmann::json::object();
};

// The status of a shell's command, as wait() gives it, and what it printed.
std::pair<int, std::string> output_of(const std::string& command);

// A word for a shell.
std::string quoted(const std::string& text);

}  // namespace lockstep::cli::diagnosis
