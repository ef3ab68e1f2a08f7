// Naive: one microbatch goes through all stages and back before the next one starts. Only one rank works at a time.
//
//   rank 0  F0 .  .  .  B0--- F1 .  .  .  B1---          4 ranks would look the same, with more dots
//   rank 1  .  F0 B0--- .  .  .  F1 B1--- .  .
//
// Bubble: (p-1)/p, whatever the number of microbatches. Peak activations: 1 per rank. It is what a model that was split
// by hand does, and the oracle for the other schedules: the same numbers, and no overlap that could go wrong.
#include "lockstep/parallel/pipeline/schedule/lists.h"

namespace lockstep::pipeline {

// region list
std::vector<Action> naive(Rank rank, int microbatches) {
  std::vector<Action> list;
  for (int m = 0; m < microbatches; ++m) {
    list.push_back({rank, Kind::F, m});
    list.push_back({rank, Kind::B, m});
  }
  return list;
}
// endregion

}  // namespace lockstep::pipeline
