// From a meeting to a transport: the one that was asked for, or the best there is.
#pragma once

#include <memory>

#include "lockstep/rendezvous/meeting.h"
#include "lockstep/transport/options.h"
#include "lockstep/transport/transport.h"

namespace lockstep::transport {

// Collective: every rank of the meeting calls it, with the same options. `meeting` must outlive the transport.
// With `auto`, ranks of one host fall back from shm to tcp together, with a warning, when there is no memory for it.
std::unique_ptr<Transport> connect(rendezvous::Meeting& meeting, const Options& options);

}  // namespace lockstep::transport
