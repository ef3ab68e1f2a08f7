// Tells which algorithm is the fastest, and why, from what was measured.
#pragma once

#include <string>
#include <vector>

#include "lockstep/buffer.h"

namespace lockstep::measure {

// One algorithm at one size.
struct Contender {
  Algorithm algorithm = Algorithm::automatic;
  double microseconds = 0;
  // Measured: messages and bytes of the rank that sent most, and the messages of all ranks.
  double messages = 0;
  double bytes = 0;
  double messages_of_all = 0;
  // Calculated by the formulas of formulas.h.
  double steps = 0;
  double summed = 0;  // bytes that the rank that sums most has summed
};

// The fastest contender. There must be at least one.
const Contender& winner(const std::vector<Contender>& contenders);

// An explanation in a few sentences.
std::string why_it_wins(const std::vector<Contender>& contenders);

}  // namespace lockstep::measure
