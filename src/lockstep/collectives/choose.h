// Which algorithm `automatic` takes, in one place.
#pragma once

#include <string>

#include "lockstep/collectives/types.h"

namespace lockstep::collectives {

// `shared`: the ranks share memory. Depends on nothing that could differ between ranks that agree on the call.
Algorithm choose(Op op, std::size_t bytes, int ranks, bool shared);
// The best among those that send messages.
Algorithm choose_messages(Op op, std::size_t bytes, int ranks);

}  // namespace lockstep::collectives
