// What `lockstep train` prints at its end, made from the document of rank 0.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "lockstep/training.h"

namespace lockstep::cli::training {

struct Options;

std::string table(const nlohmann::json& document);

// Tells the user which files the run wrote besides --out.
void say_files(const train::TrainingConfig& config);

// Prints the table or the document, writes --out, and returns the exit code. If the document holds an error, prints
// only that error, in one line.
int show(const nlohmann::json& document, const Options& options);

}  // namespace lockstep::cli::training
