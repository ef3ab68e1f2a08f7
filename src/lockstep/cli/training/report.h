// What `lockstep train` prints at its end, from the document that rank 0 made.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace lockstep::cli::training {

struct Options;

std::string table(const nlohmann::json& document);

// Says which files the run wrote besides --out.
void say_files(const train::TrainingConfig& config);

// Prints the table or the document, writes --out, and gives the exit code. A document that holds an error becomes one
// line.
int show(const nlohmann::json& document, const Options& options);

}  // namespace lockstep::cli::training
