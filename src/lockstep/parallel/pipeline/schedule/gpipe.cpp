// GPipe (Huang et al., 2018): all forwards, then all backwards. While rank 1 works on microbatch 0, rank 0 already
// works on microbatch 1.
//
//   rank 0  F0 F1 F2 F3 .  .  .  B0--- B1--- B2--- B3---
//   rank 1  .  F0 F1 F2 F3 B0--- B1--- B2--- B3--- .  .
//
// Bubble: (p-1)/(m+p-1), because of the p-1 steps in which the pipeline fills and the p-1 steps in which it drains. It
// shrinks with more microbatches, but peak activations are m on every rank, because the activations of each forward are
// held until its backward.
#include "lockstep/parallel/pipeline/schedule/lists.h"

namespace lockstep::pipeline {

// region list
std::vector<Action> gpipe(Rank rank, int microbatches) {
  std::vector<Action> list;
  for (int m = 0; m < microbatches; ++m) list.push_back({rank, Kind::F, m});
  for (int m = 0; m < microbatches; ++m) list.push_back({rank, Kind::B, m});
  return list;
}
// endregion

}  // namespace lockstep::pipeline
