// Makes one more region for some ranks of a host, which can already talk to each other.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "lockstep/rendezvous/meeting.h"
#include "lockstep/transport.h"
#include "lockstep/transport/shm/region.h"

namespace lockstep::transport::shm {

// Collective over `group`: its first rank makes the region, which is zeroed, and hands it to the others. Uses messages
// with `tag`. If one rank fails, all throw Unavailable with that rank and its reason.
std::shared_ptr<Region> share_region(rendezvous::Meeting& meeting, Transport& transport, std::span<const Rank> group,
                                     Tag tag, std::size_t bytes, const std::string& dir);

}  // namespace lockstep::transport::shm
