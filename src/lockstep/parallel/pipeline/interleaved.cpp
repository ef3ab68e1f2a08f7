// Interleaved 1F1B (Narayanan et al., 2021): a rank has v stages, p apart in the model, so a microbatch comes by v
// times and the pipe fills in steps that are v times as short. Here stages 0 and 2 are on rank 0, 1 and 3 on rank 1:
//
//   rank 0  0F0 0F1 2F0 2F1 0F2 .   2B0---- 0F3 2B1---- 2F2 0B0---- ...
//   rank 1  .   1F0 1F1 3F0 3B0---- 3F1 3B1---- 1F2 1B0---- ...
//
// Microbatches go in rounds of p: all of a round through one stage, then through the rank's next. A rank does
// (v-1)p + 2(p-1-rank) forwards ahead; the 2 gives messages time to travel (with v = 1 it is 1, as in 1F1B).
//
// Bubble: (p-1)/(vm+p-1) when p divides m. Peak activations: then min(vm, (v-1)p + 2(p-1-rank) + 1), each of a stage
// 1/v as large. Messages: v times as many.
//
// When p does not divide m, the last round is shorter. Its list is that of full rounds without the microbatches that
// are not there. Taking a whole microbatch out keeps a list right, because microbatches wait for nobody but themselves;
// counting a warm-up for the short round instead can deadlock (p = 8, m = 12, v = 3 does).
#include "lockstep/parallel/pipeline/lists.h"

namespace lockstep::pipeline {

// region list
std::vector<Action> interleaved(Rank rank, int ranks, int microbatches, int virtual_stages) {
  std::vector<Action> forwards;
  std::vector<Action> backwards;
  for (int round = 0; round < microbatches; round += ranks)
    for (int v = 0; v < virtual_stages; ++v)
      for (int m = round; m < round + ranks; ++m) {
        forwards.push_back({v * ranks + rank, Kind::F, m});
        backwards.push_back({(virtual_stages - 1 - v) * ranks + rank, Kind::B, m});
      }
  const int ahead = (virtual_stages == 1 ? 1 : 2) * (ranks - 1 - rank);
  auto list = alternate(forwards, backwards, (virtual_stages - 1) * ranks + ahead);
  std::erase_if(list, [&](const Action& action) { return action.microbatch >= microbatches; });
  return list;
}
// endregion

}  // namespace lockstep::pipeline
