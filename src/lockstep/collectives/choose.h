// Chooses the algorithm that `automatic` stands for.
#pragma once

#include <string>

#include "lockstep/buffer.h"

namespace lockstep::collectives {

// `shared` says that the ranks share memory. The choice depends only on values that are the same on all ranks that
// agree on the call.
Algorithm choose(Op op, std::size_t bytes, int ranks, bool shared);
// The best algorithm among those that send messages.
Algorithm choose_messages(Op op, std::size_t bytes, int ranks);

}  // namespace lockstep::collectives
