// The caller's side of every connection in a job, to the store and to a peer's door (transport/reception.h): connect,
// check who answers, and prove who we are.
#pragma once

#include <functional>
#include <string>

#include "lockstep/base/clock.h"
#include "lockstep/base/fd.h"
#include "lockstep/rendezvous/address.h"
#include "lockstep/rendezvous/handshake.h"

namespace lockstep::rendezvous {

// Who calls, and what the caller requires of the listener.
struct Introducing {
  std::string secret;
  Claim claim;
  bool check_uid = false;  // on a Unix socket, the listener must belong to the user of this process
  std::string if_taken{};  // the hint if another user listens there
};

// Returns a connection whose handshake is done. A listener that is flooded by strangers hangs up on callers, or answers
// late. Then this function tries again until the deadline. Throws TimedOut if nobody answered in time. Throws Error at
// once if the other side refused with a reason, or belongs to another user. `on_wait` is called between two attempts,
// and may throw.
Fd dial(const Address& address, const Introducing& caller, const Deadline& deadline,
        const std::function<void()>& on_wait = {});

// A user as messages show it: "root (uid 0)".
std::string describe_user(unsigned uid);

}  // namespace lockstep::rendezvous
