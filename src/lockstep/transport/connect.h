// Makes the transport for the ranks of a meeting: the one that was asked for, or the best there is.
#pragma once

#include <memory>

#include "lockstep/options.h"
#include "lockstep/rendezvous/meeting.h"
#include "lockstep/transport.h"

namespace lockstep::transport {

// Collective: every rank of the meeting must call it, with the same options. `meeting` must outlive the transport. With
// `auto`, ranks of one host use shm. If there is no memory for it, they all fall back to tcp together, with a warning.
// Throws UsageError if the options cannot work.
std::unique_ptr<Transport> connect(rendezvous::Meeting& meeting, const Options& options);

}  // namespace lockstep::transport
