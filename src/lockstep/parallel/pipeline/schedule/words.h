// What a rank does at one step of a schedule, in words, for error messages.
#pragma once

#include <string>

#include "lockstep/schedule.h"
#include "lockstep/types.h"

namespace lockstep::pipeline {

// As in "waits for the activation of microbatch 3 from stage 0 (rank 0)". `peer` is the rank at the other end of a
// message, and is ignored for other actions.
std::string in_words(const Action& action, Rank peer);

}  // namespace lockstep::pipeline
