// Stream sockets with deadlines. Every descriptor is close-on-exec; no call raises SIGPIPE; EINTR is handled here.
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>

#include "lockstep/base/clock.h"
#include "lockstep/base/fd.h"
#include "lockstep/base/types.h"
#include "lockstep/rendezvous/address.h"

namespace lockstep::rendezvous {

struct Listener {
  Fd fd;            // non-blocking
  Address address;  // with the port that the kernel chose
};

// Throws SystemError that names the address, also when it is taken. A socket file left by a dead process is replaced;
// one that somebody serves is not.
Listener listen_on(const Address& address);

// A non-blocking connection. While nobody listens it tries again until the deadline, then throws TimedOut. `on_wait` is
// called between two tries, and may throw.
Fd connect_to(const Address& address, const Deadline& deadline, const std::function<void()>& on_wait = {});

// The next waiting connection, non-blocking, or an empty Fd; then errno says why.
Fd accept_from(const Fd& listener);
// Whether an errno of accept_from() means that this process or the system has no descriptor left. The connection is
// still waiting, so a listener that is polled again at once would spin.
bool out_of_descriptors(int error);

// Both move all the bytes or throw: TimedOut, or SystemError when the other side is gone. They block with poll.
void write_all(const Fd& fd, ConstBytes bytes, const Deadline& deadline);
void read_exact(const Fd& fd, Bytes bytes, const Deadline& deadline);

// One poll on one descriptor; false when the deadline passed. EINTR is not an answer.
bool wait_readable(int fd, const Deadline& deadline);

// For connections that carry data: no delay, keep-alive, and an unacknowledged byte fails the connection after
// `dead_after`. A Unix socket needs none of it.
void tune_for_data(const Fd& fd, Duration dead_after);

// The user at the other end of a Unix socket, as the kernel knows it. Works on both sides: it is the user that called
// connect(), or the one that called listen().
uid_t peer_uid(const Fd& unix_connection);
std::string describe_peer(const Fd& connection);

}  // namespace lockstep::rendezvous
