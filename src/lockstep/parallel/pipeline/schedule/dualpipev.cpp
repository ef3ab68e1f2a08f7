// DualPipeV (DeepSeek, 2025): DualPipe cut in half. Rank r has stages r and 2p-1-r, as in ZBV. In the middle of a step,
// each forward of one stage stands beside a whole backward of the other stage. On devices that can do both at once, the
// messages of one hide behind the arithmetic of the other. Here the two run one after the other.
//
//   rank 0  0F0 0F1 0F2 3F0 3I0 3W0 3F1 0F3 3B1---- 3F2 0B0---- ...        2 ranks: stages 0 and 3
//   rank 1  .   1F0 2F0 1F1 2F1 1F2 2B0---- 2F2 1B0---- 1F3 2B1---- ...    stages 1 and 2
//
// Backwards are split (I, W) only in the fill and in the drain, where W fills gaps; in between they are whole.
//
// Peak activations: 2p+1 on every rank if there are at least 2p microbatches; each is of a stage half as large. With F
// = I = W, a rank is then idle for p-1 times the F of one stage, and the makespan is 6m+p-1. The published idle time,
// (p-1)(F&B + B - 3W), is that of a pair F&B whose two results come together at its end; here F's result leaves when F
// is done.
//
// With fewer than 2p microbatches, the list is the one for 2p without the microbatches that do not exist.
#include <algorithm>
#include <deque>
#include <map>

#include "lockstep/parallel/pipeline/schedule/lists.h"

namespace lockstep::pipeline {

// region list
std::vector<Action> dualpipev(Rank rank, int ranks, int microbatches) {
  const int down = rank;
  const int up = 2 * ranks - 1 - rank;
  const int all = std::max(microbatches, 2 * ranks);
  const int after = ranks - 1 - rank;  // number of ranks after this one
  std::vector<Action> list;
  std::map<int, int> forwards;
  std::map<int, int> backwards;
  std::deque<Action> put_off;
  const auto forward = [&](int stage) { list.push_back({stage, Kind::F, forwards[stage]++}); };
  const auto backward = [&](int stage, bool split) {
    const int microbatch = backwards[stage]++;
    list.push_back({stage, split ? Kind::I : Kind::B, microbatch});
    if (split) put_off.push_back({stage, Kind::W, microbatch});
  };
  const auto weight = [&] {
    list.push_back(put_off.front());
    put_off.pop_front();
  };

  // Fill.
  for (int i = 0; i < 2 * after; ++i) forward(down);
  for (int i = 0; i <= rank; ++i) {
    forward(down);
    forward(up);
  }
  for (int i = 0; i < after; ++i) {
    backward(up, true);
    weight();
    forward(up);
  }
  // Full: each forward stands beside the other stage's backward.
  for (int i = 0; i < all - 2 * ranks + rank + 1; ++i) {
    forward(down);
    backward(up, false);
    forward(up);
    backward(down, false);
  }
  // Drain. The second half of the last backwards is split, so that the results that others wait for come first.
  for (int i = 0; i < after; ++i) {
    backward(up, false);
    forward(up);
    backward(down, false);
  }
  for (int i = 0; i < 2 * (rank + 1); ++i) backward(i % 2 == 0 ? up : down, i >= rank + 1);
  for (int i = 0; i < after; ++i) {
    weight();
    backward(down, true);
  }
  while (!put_off.empty()) weight();

  std::erase_if(list, [&](const Action& action) { return action.microbatch >= microbatches; });
  return list;
}
// endregion

}  // namespace lockstep::pipeline
