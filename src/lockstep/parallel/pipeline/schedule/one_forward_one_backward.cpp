// 1F1B (PipeDream-Flush; Narayanan et al., 2021): the backward of a microbatch runs as soon as it can, and frees the
// activations. A rank does p-1-rank forwards ahead, then forwards and backwards in turn.
//
//   rank 0  F0 F1 .  .  B0--- F2 B1--- F3 B2--- .  B3---
//   rank 1  .  F0 B0--- F1 B1--- F2 B2--- F3 B3--- .  .
//
// Bubble: (p-1)/(m+p-1), the same as GPipe's. Peak activations: min(m, p-rank), however many microbatches there are. So
// one can use more microbatches, and that shrinks the bubble.
//
// With blocking sends it deadlocks: rank 0 sends the activations of F1 while rank 1 sends the gradients of B0, and each
// waits for the other to receive.
#include <algorithm>

#include "lockstep/parallel/pipeline/schedule/lists.h"

namespace lockstep::pipeline {

// region alternate
std::vector<Action> alternate(const std::vector<Action>& forwards, const std::vector<Action>& backwards, int warmup) {
  auto next = forwards.begin() + std::min(warmup, static_cast<int>(forwards.size()));
  std::vector<Action> list(forwards.begin(), next);
  for (const Action& backward : backwards) {
    if (next != forwards.end()) list.push_back(*next++);
    list.push_back(backward);
  }
  return list;
}
// endregion

// region list
std::vector<Action> one_forward_one_backward(Rank rank, int ranks, int microbatches) {
  std::vector<Action> forwards;
  std::vector<Action> backwards;
  for (int m = 0; m < microbatches; ++m) {
    forwards.push_back({rank, Kind::F, m});
    backwards.push_back({rank, Kind::B, m});
  }
  return alternate(forwards, backwards, ranks - 1 - rank);
}
// endregion

}  // namespace lockstep::pipeline
