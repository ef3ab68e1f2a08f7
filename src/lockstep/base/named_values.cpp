#include "lockstep/named_values.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "lockstep/base/suggest.h"
#include "lockstep/error.h"

namespace lockstep {

void refuse_name(const char* what, std::string_view name, std::span<const std::string> names) {
  throw UsageError(fmt::format("there is no {} '{}'", what, name),
                   closest(name, names).value_or(fmt::format("one of {}", fmt::join(names, ", "))));
}

}  // namespace lockstep
