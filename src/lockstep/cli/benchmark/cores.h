// The cores that the ranks of this host have between them.
#pragma once

#include "lockstep/rendezvous/meeting.h"

namespace lockstep::cli::benchmark {

// Collective. Some launchers bind each rank to a core of its own, so what this rank may use is not what all may.
int cores_of_all_ranks(rendezvous::Meeting& meeting);

}  // namespace lockstep::cli::benchmark
