#include "lockstep/data/chain.h"

#include <algorithm>
#include <cmath>

namespace lockstep::data {

std::vector<double> successor_probabilities(std::int64_t vocabulary) {
  const auto count = static_cast<std::size_t>(std::clamp<std::int64_t>(vocabulary, 1, kSuccessors));
  const double all = std::exp2(static_cast<double>(count)) - 1;  // 1 + 2 + 4 + ...
  std::vector<double> probabilities(count);
  for (std::size_t i = 0; i < count; ++i) probabilities[i] = std::exp2(static_cast<double>(count - 1 - i)) / all;
  return probabilities;
}

double chain_entropy(std::int64_t vocabulary) {
  double entropy = 0;
  for (const double p : successor_probabilities(vocabulary)) entropy -= p * std::log(p);
  return entropy;
}

}  // namespace lockstep::data
