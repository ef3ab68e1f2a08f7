// The options of `lockstep train`. The same code reads them twice: in the process that starts the ranks, before any
// rank exists, and in the ranks.
#pragma once

#include <set>
#include <span>
#include <string>

#include "lockstep/training.h"

namespace lockstep::cli::training {

struct Options {
  train::TrainingConfig config;
  bool json = false;
  std::string out;      // file for the document, besides what is printed
  std::string result;   // file for rank 0's document, if another process shows it
  int progress_fd = 2;  // descriptor to which rank 0 writes its progress; -1: none
};

// `arguments` are those after "train". `world` is the number of ranks that already exist, or 0 if there are none.
// Throws UsageError if the options are wrong or do not fit together.
Options parse(std::span<const std::string> arguments, int world);
std::string help();

// Throws UsageError if a flag of another model is among the names of the flags that were `given`. It is refused,
// because it would change nothing.
void check_model_flags(model::ModelKind model, const std::set<std::string>& given);

}  // namespace lockstep::cli::training
