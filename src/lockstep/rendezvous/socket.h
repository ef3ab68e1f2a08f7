// Stream sockets with deadlines. Every descriptor is close-on-exec, no call raises SIGPIPE, and EINTR is handled here.
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>

#include "lockstep/base/clock.h"
#include "lockstep/base/fd.h"
#include "lockstep/rendezvous/address.h"
#include "lockstep/types.h"

namespace lockstep::rendezvous {

struct Listener {
  Fd fd;            // non-blocking
  Address address;  // with the port that the kernel chose, if it was 0
};

// Starts to listen. Throws a SystemError that names the address if that fails, for example because the address is
// taken. A socket file that a dead process left behind is replaced; one on which somebody listens is not.
Listener listen_on(const Address& address);

// Returns a non-blocking connection. While nobody listens, it tries again until the deadline, and then throws TimedOut.
// `on_wait` is called between two attempts, and may throw.
Fd connect_to(const Address& address, const Deadline& deadline, const std::function<void()>& on_wait = {});

// Returns the next waiting connection, non-blocking, or an empty Fd. If it is empty, errno says why.
Fd accept_from(const Fd& listener);
// Whether an errno of accept_from() means that this process or the system has no descriptor or memory left. The
// connection is then still waiting, so a loop that polls the listener again at once would spin.
bool out_of_descriptors(int error);

// Both move all bytes and wait in poll if necessary. They throw TimedOut at the deadline, and SystemError if the other
// side is gone.
void write_all(const Fd& fd, ConstBytes bytes, const Deadline& deadline);
void read_exact(const Fd& fd, Bytes bytes, const Deadline& deadline);

// Waits until the descriptor is readable. Returns false if the deadline passed first.
bool wait_readable(int fd, const Deadline& deadline);

// Sets up a connection that carries data: no delay, keep-alive, and the connection fails if a byte is not acknowledged
// within `dead_after`. A Unix socket needs none of this.
void tune_for_data(const Fd& fd, Duration dead_after);

// The user at the other end of a Unix socket, as the kernel knows it. It works on both sides: the listener gets the
// user who called connect(), and the caller gets the user who called listen().
uid_t peer_uid(const Fd& unix_connection);
// The other end of a connection, for messages.
std::string describe_peer(const Fd& connection);

}  // namespace lockstep::rendezvous
