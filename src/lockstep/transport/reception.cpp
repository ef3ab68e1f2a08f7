#include "lockstep/transport/reception.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/rendezvous/handshake.h"

namespace lockstep::transport {
namespace {

using rendezvous::Claim;
using rendezvous::Greeting;
using rendezvous::Introduction;

constexpr auto kPatience = 5s;  // with one that has not introduced itself
constexpr std::size_t kMaxCallers = 256;

struct Caller {
  explicit Caller(Fd socket) : fd(std::move(socket)), greeting(rendezvous::greet()), by(Deadline::in(kPatience)) {}
  Fd fd;
  Greeting greeting;
  Deadline by;
  Introduction introduction{};
  std::size_t got = 0;
};

// True once the whole introduction is there; throws when the caller is gone.
bool read_introduction(Caller& caller) {
  while (caller.got < sizeof caller.introduction) {
    const ssize_t got = ::recv(caller.fd.get(), reinterpret_cast<char*>(&caller.introduction) + caller.got,
                               sizeof caller.introduction - caller.got, 0);
    if (got > 0)
      caller.got += static_cast<std::size_t>(got);
    else if (got < 0 && errno == EAGAIN)
      return false;
    else if (got == 0 || errno != EINTR)
      throw Error("left before it introduced itself");
  }
  return true;
}

// The caller's rank; throws with the reason when it is not welcome.
Rank examine(const Caller& caller, const rendezvous::Meeting& meeting, const std::set<Rank>& expected) {
  const auto claim = rendezvous::verify(meeting.data_secret(), caller.greeting, caller.introduction);
  if (!claim) throw Error("its secret differs");
  if (claim->purpose != Claim::data) throw Error("it wants the store, this is a data port");
  if (claim->generation != meeting.me().generation) throw Error("it belongs to an older start");
  if (claim->world != meeting.me().size || !expected.contains(claim->rank))
    throw Error(fmt::format("nobody waits for rank {} of {} here", claim->rank, claim->world));
  return claim->rank;
}

}  // namespace

void receive_peers(const rendezvous::Listener& listener, const rendezvous::Meeting& meeting, std::set<Rank> expected,
                   const std::function<void(Rank, Fd)>& welcome, const std::function<void()>& on_wait) {
  const Deadline deadline = meeting.deadline();
  std::vector<Caller> callers;
  std::vector<pollfd> entries;
  int strangers = 0;
  while (!expected.empty()) {
    if (deadline.passed())
      throw TimedOut(fmt::format("rank {}: no connection from rank {} within {:.3g} s", meeting.me().rank,
                                 fmt::join(expected, ", "), deadline.seconds()));
    entries.assign(1, {listener.fd.get(), POLLIN, 0});
    for (const Caller& caller : callers) entries.push_back({caller.fd.get(), POLLIN, 0});
    ::poll(entries.data(), entries.size(), deadline.poll_ms(100ms));
    if (on_wait) on_wait();
    std::erase_if(callers, [&](Caller& caller) {
      try {
        if (!read_introduction(caller)) {
          if (caller.by.passed()) throw Error("did not introduce itself in time");
          return false;
        }
        const Rank rank = examine(caller, meeting, expected);
        const auto answer = rendezvous::accept(meeting.data_secret(), caller.greeting, caller.introduction);
        rendezvous::write_all(caller.fd, bytes_of(answer), deadline.sooner(kPatience));
        expected.erase(rank);
        welcome(rank, std::move(caller.fd));
      } catch (const TimedOut&) {
        log::warn("rank {} dropped a connection that stopped half way", meeting.me().rank);
      } catch (const Error& error) {
        log::line(strangers++ == 0 ? log::Level::warn : log::Level::debug,
                  "rank {} dropped {}: {} (further ones are logged at debug level)", meeting.me().rank,
                  rendezvous::describe_peer(caller.fd), error.what());
        const auto answer = rendezvous::refuse(error.what());
        ::send(caller.fd.get(), &answer, sizeof answer, MSG_NOSIGNAL | MSG_DONTWAIT);
      }
      return true;
    });
    while (Fd fd = rendezvous::accept_from(listener.fd)) {
      if (callers.size() >= kMaxCallers) callers.erase(callers.begin());
      Caller& caller = callers.emplace_back(std::move(fd));
      ::send(caller.fd.get(), &caller.greeting, sizeof caller.greeting, MSG_NOSIGNAL);
    }
  }
}

Fd call_on_peer(const rendezvous::Address& address, const rendezvous::Meeting& meeting,
                const std::function<void()>& on_wait) {
  const Deadline deadline = meeting.deadline();
  Fd fd = rendezvous::connect_to(address, deadline, on_wait);
  rendezvous::introduce(fd, meeting.data_secret(), meeting.data_claim(), deadline);
  return fd;
}

}  // namespace lockstep::transport
