// The caller's side of every connection in a job, to the store and to a peer's door: connect, look who answers, and
// prove who we are.
#pragma once

#include <functional>
#include <string>

#include "lockstep/base/clock.h"
#include "lockstep/base/fd.h"
#include "lockstep/rendezvous/address.h"
#include "lockstep/rendezvous/handshake.h"

namespace lockstep::rendezvous {

struct Introducing {
  std::string secret;
  Claim claim;
  bool check_uid = false;  // on a Unix socket: whoever listens must be this process's user
  std::string if_taken{};  // what to try when another user listens there
};

// A connection whose handshake is done. A listener that strangers flood hangs up on callers, or answers late; then this
// tries again until the deadline. Throws TimedOut when nobody answered in time, and Error at once when the other side
// refused in words, or belongs to another user. `on_wait` is called between two tries, and may throw.
Fd dial(const Address& address, const Introducing& caller, const Deadline& deadline,
        const std::function<void()>& on_wait = {});

// "root (uid 0)", for messages.
std::string describe_user(unsigned uid);

}  // namespace lockstep::rendezvous
