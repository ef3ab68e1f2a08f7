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
  std::string advice;  // what to do if something is wrong
  nlohmann::json detail = nlohmann::json::object();
};

// Runs a command in a shell. Returns its status, as wait() gives it, and what it printed.
std::pair<int, std::string> output_of(const std::string& command);

// `text`, quoted as one word for a shell.
std::string quoted(const std::string& text);

}  // namespace lockstep::cli::diagnosis
