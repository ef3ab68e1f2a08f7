// The door of a rank: accepts the data connections of expected peers, each after its handshake. Several peers may call
// at once. Strangers and slow callers are dropped and do not delay the others. In a flood, the oldest caller is dropped
// to make room for the next one; a rank that was dropped in this way calls again. On a Unix socket, other users are
// dropped at once.
#pragma once

#include <functional>
#include <set>

#include "lockstep/rendezvous/meeting.h"
#include "lockstep/rendezvous/socket.h"

namespace lockstep::transport {

// Calls `welcome` with the connection of each expected rank, and returns when all have come. Throws a TimedOut that
// names the missing ranks, and PeerDied if an expected rank on this host has ended. `on_wait` is called now and then,
// and may throw.
void receive_peers(const rendezvous::Listener& listener, const rendezvous::Meeting& meeting, std::set<Rank> expected,
                   const std::function<void(Rank, Fd)>& welcome, const std::function<void()>& on_wait = {});

// The other side: connects to a peer's door and proves who we are. Throws a TimedOut that names the peer, and PeerDied
// if the peer is on this host and has ended. `on_wait` is called while nobody answers, and may throw.
Fd call_on_peer(Rank peer, const rendezvous::Address& address, const rendezvous::Meeting& meeting,
                const std::function<void()>& on_wait = {});

}  // namespace lockstep::transport
