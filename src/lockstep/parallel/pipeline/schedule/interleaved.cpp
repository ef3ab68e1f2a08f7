// Interleaved 1F1B (Narayanan et al., 2021): a rank has v stages, p apart in the model. So a microbatch passes each
// rank v times, and the pipeline fills in steps that are v times as short. Here stages 0 and 2 are on rank 0, and
// stages 1 and 3 on rank 1:
//
//   rank 0  0F0 0F1 2F0 2F1 0F2 .   2B0---- 0F3 2B1---- 2F2 0B0---- ...
//   rank 1  .   1F0 1F1 3F0 3B0---- 3F1 3B1---- 1F2 1B0---- ...
//
// Microbatches go in rounds of at least p microbatches: all microbatches of a round through one stage, then all through
// the rank's next stage. The first round is the longest and has n microbatches. A rank does (v-1)n + 2(p-1-rank)
// forwards ahead; the factor 2 gives messages time to travel (with v = 1 it is 1, as in 1F1B).
//
// Bubble: (p-1)/(vm+p-1) for m >= p. Peak activations: min(vm, (v-1)n + 2(p-1-rank) + 1), each of a stage 1/v as large.
// There are v times as many messages.
//
// When p does not divide m, there are floor(m/p) rounds, as equal as possible, the longer ones first: 11 microbatches
// on 4 ranks are rounds of 6 and 5. A round shorter than p would leave ranks idle. A longer round after a shorter one
// can deadlock, because the warm-up was computed for the shorter one.
#include <algorithm>

#include "lockstep/parallel/pipeline/schedule/lists.h"

namespace lockstep::pipeline {

// region list
std::vector<Action> interleaved(Rank rank, int ranks, int microbatches, int virtual_stages) {
  const int rounds = std::max(1, microbatches / ranks);
  const auto size_of = [&](int round) { return microbatches / rounds + (round < microbatches % rounds ? 1 : 0); };
  std::vector<Action> forwards;
  std::vector<Action> backwards;
  for (int round = 0, first = 0; round < rounds; first += size_of(round++))
    for (int v = 0; v < virtual_stages; ++v)
      for (int m = first; m < first + size_of(round); ++m) {
        forwards.push_back({v * ranks + rank, Kind::F, m});
        backwards.push_back({(virtual_stages - 1 - v) * ranks + rank, Kind::B, m});
      }
  const int ahead = (virtual_stages == 1 ? 1 : 2) * (ranks - 1 - rank);
  return alternate(forwards, backwards, (virtual_stages - 1) * size_of(0) + ahead);
}
// endregion

}  // namespace lockstep::pipeline
