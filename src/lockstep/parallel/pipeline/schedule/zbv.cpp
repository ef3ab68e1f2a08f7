// ZBV (Qi et al., 2023): zero bubble on a V. Rank r has stages r and 2p-1-r, so a microbatch goes down the ranks and
// comes back up. The last rank passes it from one of its stages to the other without a message. Rank 0 has the last
// stage, so it computes the first gradient as soon as the first microbatch is back.
//
//   rank 0  0F0 0F1 0F2 3F0 3I0 3W0 3F1 3I1 3W1 0F3 0I0 0W0 ...        2 ranks: stages 0 and 3
//   rank 1  .   1F0 2F0 1F1 2F1 2I0 2W0 1F2 1I0 1W0 2F2 2I1 ...        stages 1 and 2
//
// Peak activations: 2p on every rank, each of a stage half as large. That is as much memory as 1F1B's first rank needs.
// With F = I = W and at least 2p-1 microbatches, no rank is idle between its own first action and its own last. The
// makespan is 6m+p-1 times the F of one stage.
//
// With fewer microbatches, the list is the one for 2p-1 without the microbatches that do not exist. A list stays right
// when a whole microbatch is removed, because microbatches do not wait for each other.
#include <algorithm>
#include <map>

#include "lockstep/parallel/pipeline/schedule/lists.h"

namespace lockstep::pipeline {

// region list
std::vector<Action> zbv(Rank rank, int ranks, int microbatches) {
  const int down = rank;                // this rank's stage on the way down the ranks
  const int up = 2 * ranks - 1 - rank;  // this rank's stage on the way back
  const int all = std::max(microbatches, 2 * ranks - 1);
  std::vector<Action> list;
  std::map<std::pair<int, Kind>, int> done;
  const auto add = [&](int stage, Kind kind) { list.push_back({stage, kind, done[{stage, kind}]++}); };
  const auto left = [&](int stage, Kind kind) { return done[{stage, kind}] < all; };

  // Fill: as many forwards as fit until the first microbatch is back, then its backwards.
  for (int i = 0; i < 2 * (ranks - rank) - 1; ++i) add(down, Kind::F);
  for (int i = 0; i < rank; ++i) {
    add(up, Kind::F);
    add(down, Kind::F);
  }
  for (int i = 0; i < ranks - rank; ++i)
    for (const Kind kind : {Kind::F, Kind::I, Kind::W}) add(up, kind);
  // Full: one microbatch comes in and one goes out.
  while (left(up, Kind::F)) {
    if (left(down, Kind::F)) add(down, Kind::F);
    for (const Kind kind : {Kind::I, Kind::W}) add(down, kind);
    for (const Kind kind : {Kind::F, Kind::I, Kind::W}) add(up, kind);
  }
  // Drain: the results that others wait for come first, and W fills the gaps.
  for (int i = 0; i < rank; ++i) {
    add(down, Kind::I);
    add(up, Kind::I);
  }
  for (int i = 0; i < ranks - rank; ++i)
    for (const Kind kind : {Kind::I, Kind::W}) add(down, kind);
  for (const int stage : {up, down})
    while (left(stage, Kind::W)) add(stage, Kind::W);

  std::erase_if(list, [&](const Action& action) { return action.microbatch >= microbatches; });
  return list;
}
// endregion

}  // namespace lockstep::pipeline
