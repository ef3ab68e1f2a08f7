#include "lockstep/rendezvous/socket.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "lockstep/base/clock.h"
#include "lockstep/base/log.h"
#include "lockstep/error.h"

namespace lockstep::rendezvous {
namespace {

constexpr auto kFirstAttempt = 250ms;

struct Endpoint {
  sockaddr_storage storage{};
  socklen_t length = 0;
  int family() const { return storage.ss_family; }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
};

Endpoint unix_endpoint(const std::string& path) {
  Endpoint endpoint;
  auto* name = reinterpret_cast<sockaddr_un*>(&endpoint.storage);
  name->sun_family = AF_UNIX;
  std::memcpy(name->sun_path, path.data(), path.size());
  const bool abstract = path.front() == '@';
  if (abstract) name->sun_path[0] = '\0';
  endpoint.length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + path.size() + (abstract ? 0 : 1));
  return endpoint;
}

std::vector<Endpoint> resolve(const Address& address) {
  if (address.is_unix()) return {unix_endpoint(address.path)};
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(address.host.c_str(), std::to_string(address.port).c_str(), &hints, &found);
  if (error != 0)
    throw UsageError(
        fmt::format("'{}' is not an address of this or any known host: {}", address.host, gai_strerror(error)),
        "an IP address, or a name that `getent hosts` knows");
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found, &freeaddrinfo);
  std::vector<Endpoint> endpoints;
  for (const addrinfo* info = found; info != nullptr; info = info->ai_next) {
    Endpoint endpoint;
    std::memcpy(&endpoint.storage, info->ai_addr, info->ai_addrlen);
    endpoint.length = info->ai_addrlen;
    endpoints.push_back(endpoint);
  }
  return endpoints;
}

Fd new_socket(int family, int flags = SOCK_NONBLOCK) {
  Fd fd(::socket(family, SOCK_STREAM | SOCK_CLOEXEC | flags, 0));
  if (!fd) throw SystemError(errno, "cannot make a socket", "a higher `ulimit -n`");
  return fd;
}

// Removes a socket file on which nobody listens. A process that died has left it behind.
void remove_stale_socket_file(const Address& address) {
  struct stat info {};
  if (address.path.front() == '@' || ::stat(address.path.c_str(), &info) != 0 || !S_ISSOCK(info.st_mode)) return;
  const Endpoint endpoint = unix_endpoint(address.path);
  const Fd probe = new_socket(AF_UNIX);
  if (::connect(probe.get(), endpoint.get(), endpoint.length) != 0 && errno == ECONNREFUSED) {
    log::info("removing {}, left by a process that is gone", address.text());
    ::unlink(address.path.c_str());
  }
}

int bound_port(const Fd& fd) {
  sockaddr_storage storage{};
  socklen_t length = sizeof storage;
  if (::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&storage), &length) != 0) return 0;
  if (storage.ss_family == AF_INET) return ntohs(reinterpret_cast<sockaddr_in*>(&storage)->sin_port);
  if (storage.ss_family == AF_INET6) return ntohs(reinterpret_cast<sockaddr_in6*>(&storage)->sin6_port);
  return 0;
}

// Returns 0 when connected, otherwise an errno. The call blocks, because then the kernel lets the caller wait in line
// while the listener's queue is full. A non-blocking call would be refused each time, and could lose against a flood
// for ever.
int connect_unix(const Fd& fd, const Endpoint& endpoint, const Deadline& deadline) {
  const int ms = std::max(1, deadline.poll_ms());
  const timeval patience{ms / 1000, ms % 1000 * 1000};
  ::setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
  if (::connect(fd.get(), endpoint.get(), endpoint.length) != 0) return errno == EINTR ? EAGAIN : errno;
  const timeval for_ever{};
  ::setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &for_ever, sizeof for_ever);
  return ::fcntl(fd.get(), F_SETFL, O_NONBLOCK) == 0 ? 0 : errno;
}

// The same over TCP. The socket is non-blocking, so this function waits in poll.
int connect_tcp(const Fd& fd, const Endpoint& endpoint, const Deadline& deadline) {
  if (::connect(fd.get(), endpoint.get(), endpoint.length) == 0) return 0;
  if (errno != EINPROGRESS && errno != EINTR) return errno;
  pollfd entry{fd.get(), POLLOUT, 0};
  while (true) {
    const int ready = ::poll(&entry, 1, deadline.poll_ms());
    if (ready > 0) break;
    if (ready == 0) return ETIMEDOUT;
    if (errno != EINTR) return errno;
  }
  int error = 0;
  socklen_t length = sizeof error;
  ::getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &length);
  return error;
}

}  // namespace

Listener listen_on(const Address& address) {
  if (address.is_unix()) remove_stale_socket_file(address);
  int error = 0;
  for (const Endpoint& endpoint : resolve(address)) {
    Listener listener{new_socket(endpoint.family()), address};
    const int yes = 1;
    ::setsockopt(listener.fd.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (::bind(listener.fd.get(), endpoint.get(), endpoint.length) == 0 &&
        ::listen(listener.fd.get(), SOMAXCONN) == 0) {
      if (!address.is_unix()) listener.address.port = bound_port(listener.fd);
      return listener;
    }
    error = errno;
  }
  throw SystemError(error, fmt::format("cannot listen on {}", address.text()),
                    error == EADDRINUSE ? "another port, or 0 for any free one" : "an address of this host");
}

Fd connect_to(const Address& address, const Deadline& deadline, const std::function<void()>& on_wait) {
  auto pause = std::chrono::milliseconds(1);
  // A listener whose queue is full drops the request, and the kernel repeats it only after 1 s, 3 s and 7 s. A new
  // attempt is quicker. Each attempt may take longer than the one before, so that on a slow network one is long enough.
  Duration patience = kFirstAttempt;
  while (true) {
    int error = 0;
    for (const Endpoint& endpoint : resolve(address)) {
      const bool tcp = endpoint.family() != AF_UNIX;
      Fd fd = new_socket(endpoint.family(), tcp ? SOCK_NONBLOCK : 0);
      error = (tcp ? connect_tcp : connect_unix)(fd, endpoint, deadline.sooner(patience));
      if (error == 0) return fd;
    }
    if (error == ETIMEDOUT) patience *= 2;
    // Nobody listens yet, or the listener's queue is full. The other side may only be slower than we are.
    const bool may_come = error == ECONNREFUSED || error == ENOENT || error == EAGAIN || error == ECONNRESET;
    if (!may_come && error != ETIMEDOUT) throw SystemError(error, fmt::format("cannot connect to {}", address.text()));
    if (deadline.passed())
      throw TimedOut(fmt::format("nobody answered on {} within {:.3g} s", address.text(), deadline.seconds()),
                     "see whether the process that serves it has started, and that the address is right");
    if (on_wait) on_wait();
    std::this_thread::sleep_for(std::min<Duration>(pause, deadline.left()));
    pause = std::min(pause * 2, std::chrono::milliseconds(50));
  }
}

Fd accept_from(const Fd& listener) {
  while (true) {
    Fd fd(::accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (fd) return fd;
    if (errno == EINTR || errno == ECONNABORTED) continue;
    if (out_of_descriptors(errno)) {  // the kernel says so even if no connection is waiting
      const int error = errno;
      pollfd entry{listener.get(), POLLIN, 0};
      errno = ::poll(&entry, 1, 0) > 0 ? error : EAGAIN;
    }
    return fd;
  }
}

bool wait_readable(int fd, const Deadline& deadline) {
  pollfd entry{fd, POLLIN, 0};
  while (true) {
    const int ready = ::poll(&entry, 1, deadline.poll_ms());
    if (ready > 0) return true;
    if (ready == 0 && deadline.passed()) return false;
    if (ready < 0 && errno != EINTR) throw SystemError(errno, "poll failed");
  }
}

namespace {

// Calls `move`, which is a send or a recv, until all bytes are moved. If it would block, sleeps in poll for `event`.
template <typename Move>
void move_all(const Fd& fd, std::size_t total, short event, const Deadline& deadline, const char* what, Move move) {
  for (std::size_t done = 0; done < total;) {
    const ssize_t moved = move(done);
    const int error = moved < 0 ? errno : 0;  // saved, because describe_peer() makes system calls, too
    if (moved > 0) {
      done += static_cast<std::size_t>(moved);
    } else if (moved == 0) {
      throw SystemError(ECONNRESET, fmt::format("{} closed the connection", describe_peer(fd)));
    } else if (error == EAGAIN || error == EWOULDBLOCK) {
      pollfd entry{fd.get(), event, 0};
      if (::poll(&entry, 1, deadline.poll_ms()) == 0 && deadline.passed())
        throw TimedOut(
            fmt::format("{} {} did not finish within {:.3g} s", what, describe_peer(fd), deadline.seconds()));
    } else if (error != EINTR) {
      throw SystemError(error, fmt::format("{} {}", what, describe_peer(fd)));
    }
  }
}

}  // namespace

void write_all(const Fd& fd, ConstBytes bytes, const Deadline& deadline) {
  move_all(fd, bytes.size(), POLLOUT, deadline, "writing to",
           [&](std::size_t done) { return ::send(fd.get(), bytes.data() + done, bytes.size() - done, MSG_NOSIGNAL); });
}

void read_exact(const Fd& fd, Bytes bytes, const Deadline& deadline) {
  move_all(fd, bytes.size(), POLLIN, deadline, "reading from",
           [&](std::size_t done) { return ::recv(fd.get(), bytes.data() + done, bytes.size() - done, 0); });
}

void tune_for_data(const Fd& fd, Duration dead_after) {
  int family = 0;
  socklen_t length = sizeof family;
  ::getsockopt(fd.get(), SOL_SOCKET, SO_DOMAIN, &family, &length);
  if (family == AF_UNIX) return;
  const auto set = [&](int level, int name, int value) { ::setsockopt(fd.get(), level, name, &value, sizeof value); };
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(dead_after).count();
  set(IPPROTO_TCP, TCP_NODELAY, 1);
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  const int every = static_cast<int>(std::clamp<std::int64_t>(ms / 4000, 1, 5));  // seconds
  set(IPPROTO_TCP, TCP_KEEPIDLE, every);
  set(IPPROTO_TCP, TCP_KEEPINTVL, every);
  set(IPPROTO_TCP, TCP_KEEPCNT, static_cast<int>(std::clamp<std::int64_t>(ms / (every * 1000), 1, 127)));
  set(IPPROTO_TCP, TCP_USER_TIMEOUT, static_cast<int>(std::min<std::int64_t>(ms, 1 << 30)));
}

bool out_of_descriptors(int error) { return error == EMFILE || error == ENFILE || error == ENOMEM || error == ENOBUFS; }

uid_t peer_uid(const Fd& unix_connection) {
  ucred credentials{};
  socklen_t length = sizeof credentials;
  if (::getsockopt(unix_connection.get(), SOL_SOCKET, SO_PEERCRED, &credentials, &length) != 0)
    throw SystemError(errno, "cannot read the credentials of a Unix socket's peer");
  return credentials.uid;
}

std::string describe_peer(const Fd& connection) {
  sockaddr_storage storage{};
  socklen_t length = sizeof storage;
  if (::getpeername(connection.get(), reinterpret_cast<sockaddr*>(&storage), &length) != 0) return "the other side";
  if (storage.ss_family == AF_UNIX) {
    ucred credentials{};
    socklen_t size = sizeof credentials;
    ::getsockopt(connection.get(), SOL_SOCKET, SO_PEERCRED, &credentials, &size);
    return fmt::format("pid {} (uid {})", credentials.pid, credentials.uid);
  }
  char host[NI_MAXHOST];
  char port[NI_MAXSERV];
  if (::getnameinfo(reinterpret_cast<sockaddr*>(&storage), length, host, sizeof host, port, sizeof port,
                    NI_NUMERICHOST | NI_NUMERICSERV) != 0)
    return "an unknown peer";
  return fmt::format("{}:{}", host, port);
}

}  // namespace lockstep::rendezvous
