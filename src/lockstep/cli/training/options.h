// What `lockstep train` was asked for. Read twice, by the same code: by who starts the ranks, before any of them is
// there, and by the ranks.
#pragma once

#include <span>
#include <string>

#include "lockstep/train/config.h"

namespace lockstep::cli::training {

struct Options {
  train::TrainingConfig config;
  bool json = false;
  std::string out;      // a file for the document
  std::string result;   // where rank 0 puts the document, when somebody else shows it
  int progress_fd = 2;  // where it says how far it is
};

// `arguments` are those after "train". `world`: the ranks there are already, 0 if none. Throws UsageError.
Options parse(std::span<const std::string> arguments, int world);
std::string help();

}  // namespace lockstep::cli::training
