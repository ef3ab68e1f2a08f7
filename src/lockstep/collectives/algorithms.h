// The functions that make plans; each algorithm has a file of its own. `me` and all peers are numbered relative to the
// root; `p` is the number of ranks.
#pragma once

#include "lockstep/collectives/plan.h"

namespace lockstep::collectives {

namespace naive {
Plan all_reduce(Rank me, int p);
Plan reduce(Rank me, int p);
Plan broadcast(Rank me, int p);
Plan scatter(Rank me, int p);
Plan gather(Rank me, int p);
Plan all_gather(Rank me, int p);
Plan reduce_scatter(Rank me, int p);
Plan all_to_all(Rank me, int p);
Plan barrier(Rank me, int p);
}  // namespace naive

namespace exchange {
Plan all_reduce(Rank me, int p);
Plan all_gather(Rank me, int p);
Plan all_to_all(Rank me, int p);
}  // namespace exchange

namespace tree {
Plan all_reduce(Rank me, int p);
Plan reduce(Rank me, int p);
Plan broadcast(Rank me, int p);
Plan scatter(Rank me, int p);
Plan gather(Rank me, int p);
Plan all_gather(Rank me, int p);
Plan reduce_scatter(Rank me, int p);
}  // namespace tree

namespace ring {
Plan all_reduce(Rank me, int p);
Plan reduce(Rank me, int p);
Plan broadcast(Rank me, int p);
Plan all_gather(Rank me, int p);
Plan reduce_scatter(Rank me, int p);
}  // namespace ring

namespace halving_doubling {
Plan all_reduce(Rank me, int p);
Plan all_gather(Rank me, int p);
Plan barrier(Rank me, int p);
}  // namespace halving_doubling

namespace ordered {
Plan all_reduce(Rank me, int p);
Plan reduce(Rank me, int p);
Plan reduce_scatter(Rank me, int p);
}  // namespace ordered

}  // namespace lockstep::collectives
