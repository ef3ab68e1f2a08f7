#include "lockstep/base/suggest.h"

#include <algorithm>
#include <numeric>
#include <vector>

namespace lockstep {
namespace {

// The Levenshtein distance, computed row by row.
std::size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, replaced});
    }
  }
  return row.back();
}

}  // namespace

std::optional<std::string> closest(std::string_view word, std::span<const std::string> choices) {
  std::optional<std::string> best;
  std::size_t least = 1 + word.size() / 3;  // what is further away is another word and not a typing error
  for (const std::string& choice : choices) {
    const std::size_t steps = distance(word, choice);
    if (steps <= least && (!best || steps < least)) {
      best = choice;
      least = steps;
    }
  }
  return best;
}

}  // namespace lockstep
