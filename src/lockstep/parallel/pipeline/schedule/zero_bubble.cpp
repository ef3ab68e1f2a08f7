// Zero bubble, H1 and H2 (Qi et al., 2023): 1F1B with the backward in two parts. I, the gradient of the input, is what
// the stage before waits for, so it comes at once. Nobody waits for W, the gradients of the weights, so it fills time
// that would be idle. This is H1:
//
//   rank 0  F0 F1 .  I0 W0 F2 I1 W1 F3 I2 W2 I3 W3
//   rank 1  .  F0 I0 F1 I1 W0 F2 I2 W1 F3 I3 W2 W3
//
// A rank does depth * (p-1-rank) forwards ahead, and the W of a microbatch comes depth * rank backwards late. Later
// ranks have fewer forwards in flight, and may put off as many more W, so every rank holds the same number of
// activations.
//
// H1 has depth 1. Its forwards are those of 1F1B. Peak activations: min(m, p) on every rank, held until W. That is what
// 1F1B's first rank holds. The makespan, when neither F nor I is shorter than W, is m(F+I+W) + (p-1)(F+I) - min(m,p)W +
// W. So with at least p microbatches, a rank is idle for (p-1)(F+I-W), where 1F1B has (p-1)(F+I+W). With F = I = W the
// bubble is (p-1)/(3m+p-1), against 3(p-1)/(3m+3(p-1)).
//
// H2 has depth 2. Peak activations: min(m, 2p-1) on every rank. With F = I = W and at least 2p-1 microbatches, no rank
// is idle between its own first action and its own last. Ranks still begin and end one after the other, so the makespan
// is the same as H1's. H2 is faster than H1 only if the next step's forwards may begin before all ranks are done.
#include <algorithm>

#include "lockstep/parallel/pipeline/schedule/lists.h"

namespace lockstep::pipeline {

// region list
std::vector<Action> zero_bubble(Rank rank, int ranks, int microbatches, int depth) {
  const int warmup = std::min(depth * (ranks - 1 - rank), microbatches);
  const int late = depth * rank;
  std::vector<Action> list;
  for (int m = 0; m < warmup; ++m) list.push_back({rank, Kind::F, m});
  for (int m = 0; m < microbatches; ++m) {
    if (warmup + m < microbatches) list.push_back({rank, Kind::F, warmup + m});
    list.push_back({rank, Kind::I, m});
    if (m >= late) list.push_back({rank, Kind::W, m - late});
  }
  for (int m = std::max(0, microbatches - late); m < microbatches; ++m) list.push_back({rank, Kind::W, m});
  return list;
}
// endregion

}  // namespace lockstep::pipeline
