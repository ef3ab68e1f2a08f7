// The door of a rank: takes in the data connections of expected peers, each after its handshake. Several may knock at
// once; strangers and slow ones are dropped and don't hold up the others. In a flood the oldest caller makes room for
// the next, and a rank that was dropped like that calls again. On a Unix socket, other users are dropped at once.
#pragma once

#include <functional>
#include <set>

#include "lockstep/rendezvous/meeting.h"
#include "lockstep/rendezvous/socket.h"

namespace lockstep::transport {

// Calls `welcome` with each expected rank's connection. Throws TimedOut that names the missing ones, and PeerDied when
// one of them, on this host, has ended. `on_wait` is called now and then, and may throw.
void receive_peers(const rendezvous::Listener& listener, const rendezvous::Meeting& meeting, std::set<Rank> expected,
                   const std::function<void(Rank, Fd)>& welcome, const std::function<void()>& on_wait = {});

// The other side: connects to a peer's door and proves who we are. Throws TimedOut that names the peer, and PeerDied
// when the peer, on this host, has ended. `on_wait` is called while nobody answers the door, and may throw.
Fd call_on_peer(Rank peer, const rendezvous::Address& address, const rendezvous::Meeting& meeting,
                const std::function<void()>& on_wait = {});

}  // namespace lockstep::transport
