// Which algorithm won, and why, told from what was measured.
#pragma once

#include <string>
#include <vector>

#include "lockstep/collectives/types.h"

namespace lockstep::cli::comparison {

// One algorithm at one size.
struct Contender {
  Algorithm algorithm = Algorithm::automatic;
  double microseconds = 0;
  // Measured: sent by the rank that sent most, and messages of all ranks.
  double messages = 0;
  double bytes = 0;
  double messages_of_all = 0;
  // By the formulas.
  double steps = 0;
  double summed = 0;  // bytes, by the rank that sums most
};

// The fastest.
const Contender& winner(const std::vector<Contender>& contenders);

// Some sentences.
std::string why_it_wins(const std::vector<Contender>& contenders);

}  // namespace lockstep::cli::comparison
