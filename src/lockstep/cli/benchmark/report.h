// What people see of a bench's document, and what a script learns from the exit code.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace lockstep::cli::benchmark {

// nccl-tests' columns, and ours.
std::string table(const nlohmann::json& document);

// The rows that are wrong, or slower on the bus than `min_bandwidth` GB/s: a line each. Empty when all is well.
std::string complaints(const nlohmann::json& document, double min_bandwidth);

// "64K", "1.5M", "100": a size as people type it.
std::string brief_bytes(double bytes);

}  // namespace lockstep::cli::benchmark
