// How some ranks of a host come to share one more region, once they can talk to each other.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "lockstep/rendezvous/meeting.h"
#include "lockstep/transport/shm/region.h"
#include "lockstep/transport/transport.h"

namespace lockstep::transport::shm {

// Collective over `group`: its first rank makes the region, zeroed, and hands it to the others. Uses messages with
// `tag`. When one rank fails all throw Unavailable, with that rank and its reason.
std::shared_ptr<Region> share_region(rendezvous::Meeting& meeting, Transport& transport, std::span<const Rank> group,
                                     Tag tag, std::size_t bytes, const std::string& dir);

}  // namespace lockstep::transport::shm
