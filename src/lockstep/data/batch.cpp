#include "lockstep/data.h"

#include <fmt/format.h>
#include <algorithm>

#include "lockstep/error.h"

namespace lockstep::data {

double Batch::share() const {
  if (whole < 1)
    throw UsageError(fmt::format("a batch of {} rows says that the whole batch has {}", rows(), whole),
                     "Batch::whole set to the rows of all ranks together");
  return static_cast<double>(rows()) / static_cast<double>(whole);
}

Rows rows_of(Rank rank, int ranks, std::int64_t n) {
  if (rank < 0 || rank >= ranks || n < 0)
    throw UsageError(fmt::format("no rows for rank {} of {} in a batch of {}", rank, ranks, n),
                     "a rank from 0 to ranks-1");
  const std::int64_t each = n / ranks, more = n % ranks;
  const std::int64_t begin = rank * each + std::min<std::int64_t>(rank, more);
  return {begin, begin + each + (rank < more ? 1 : 0)};
}

Batch slice(const Batch& whole, Rank rank, int ranks) {
  const Rows rows = rows_of(rank, ranks, whole.rows());
  return {.inputs = whole.inputs.narrow(0, rows.begin, rows.count()),
          .targets = whole.targets.narrow(0, rows.begin, rows.count()),
          .whole = whole.rows()};
}

}  // namespace lockstep::data
