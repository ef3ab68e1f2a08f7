// The number of cores that the ranks of this host have together.
#pragma once

#include "lockstep/rendezvous/meeting.h"

namespace lockstep::measure {

// Collective. Some launchers bind each rank to a core of its own, so this rank's cores alone do not tell how many all
// ranks have.
int cores_of_all_ranks(rendezvous::Meeting& meeting);

}  // namespace lockstep::measure
