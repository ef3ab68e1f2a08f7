// What `lockstep compare` can compare. Each takes the arguments after its name and returns the exit code.
#pragma once

#include <span>
#include <string>

namespace lockstep::cli::comparison {

int compare_allreduce(std::span<const std::string> arguments);
int compare_hooks(std::span<const std::string> arguments);
int compare_overlap(std::span<const std::string> arguments);
int compare_buckets(std::span<const std::string> arguments);
int compare_ranks(std::span<const std::string> arguments);
int compare_schedules(std::span<const std::string> arguments);

}  // namespace lockstep::cli::comparison
