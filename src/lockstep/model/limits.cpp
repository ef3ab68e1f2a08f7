#include "lockstep/model/limits.h"

#include <fmt/format.h>
#include <unistd.h>

#include "lockstep/error.h"

namespace lockstep::model {

void check_size(const std::string& what, std::int64_t size) {
  if (size < 1) throw UsageError(fmt::format("{} is {}, but must be at least 1", what, size), what + " 1 or more");
}

void check_depth(std::int64_t depth) {
  constexpr std::int64_t kMost = 1'000'000;
  if (depth > kMost) throw UsageError(fmt::format("depth is {}", depth), fmt::format("at most {}", kMost));
}

void check_fits(const std::string& what, double parameters) {
  const double memory = static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGESIZE));
  const double weights = parameters * sizeof(float);
  if (weights > memory)
    throw UsageError(
        fmt::format("{} has {:.3g} parameters; its weights alone take {:.1f} GB, this machine has {:.1f} GB", what,
                    parameters, weights / 1e9, memory / 1e9),
        "a smaller model");
}

}  // namespace lockstep::model
