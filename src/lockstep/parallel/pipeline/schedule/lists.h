// The lists of actions of the built-in schedules: each function returns the list of one rank, or the lists of all
// ranks. Comments call the number of microbatches m and the number of ranks p.
#pragma once

#include <vector>

#include "lockstep/schedule.h"
#include "lockstep/types.h"

namespace lockstep::pipeline {

using Lists = std::vector<std::vector<Action>>;  // [rank]

// Each rank has one stage.
std::vector<Action> naive(Rank rank, int microbatches);
std::vector<Action> gpipe(Rank rank, int microbatches);
std::vector<Action> one_forward_one_backward(Rank rank, int ranks, int microbatches);
std::vector<Action> zero_bubble(Rank rank, int ranks, int microbatches, int depth);

// Stage s is on rank s mod p.
std::vector<Action> interleaved(Rank rank, int ranks, int microbatches, int virtual_stages);

// Rank r has stages r and 2p-1-r.
std::vector<Action> zbv(Rank rank, int ranks, int microbatches);
std::vector<Action> dualpipev(Rank rank, int ranks, int microbatches);
Lists v_half(int ranks, int microbatches);
Lists v_min(int ranks, int microbatches);

// The pattern behind 1F1B: `warmup` forwards, then forwards and backwards in turn, then the remaining backwards.
std::vector<Action> alternate(const std::vector<Action>& forwards, const std::vector<Action>& backwards, int warmup);

}  // namespace lockstep::pipeline
