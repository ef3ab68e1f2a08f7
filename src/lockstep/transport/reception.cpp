#include "lockstep/transport/reception.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <deque>
#include <optional>
#include <utility>
#include <vector>

#include "lockstep/base/clock.h"
#include "lockstep/base/log.h"
#include "lockstep/error.h"
#include "lockstep/rendezvous/dial.h"
#include "lockstep/rendezvous/handshake.h"

namespace lockstep::transport {
namespace {

using rendezvous::Claim;
using rendezvous::Greeting;
using rendezvous::Introduction;

constexpr auto kPatience = 5s;  // how long a caller gets to introduce itself
constexpr std::size_t kMaxCallers = 512;
// How many connections are accepted before the existing ones are read from. In a flood, a rank must be able to
// introduce itself before it is the oldest caller.
constexpr int kAcceptsAtATime = 64;
// If no descriptor is left: the pause before the next accept, and the time after which the rank gives up.
constexpr auto kDeafFor = 50ms;
constexpr auto kDeafAtMost = 2s;
constexpr auto kLookEvery = 100ms;  // between two checks that the expected ranks are alive

// The reason for which a caller is refused. It is sent to the caller.
class Refusal : public Error {
 public:
  using Error::Error;
};

struct Caller {
  explicit Caller(Fd socket) : fd(std::move(socket)), greeting(rendezvous::greet()), by(Deadline::in(kPatience)) {}
  Fd fd;
  Greeting greeting;
  Deadline by;
  Introduction introduction{};
  std::size_t got = 0;
};

// Reads what has come of the introduction. True once it is complete. Throws SystemError if the caller is gone.
bool read_introduction(Caller& caller) {
  while (caller.got < sizeof caller.introduction) {
    const ssize_t got = ::recv(caller.fd.get(), reinterpret_cast<char*>(&caller.introduction) + caller.got,
                               sizeof caller.introduction - caller.got, 0);
    if (got > 0)
      caller.got += static_cast<std::size_t>(got);
    else if (got < 0 && errno == EAGAIN)
      return false;
    else if (got == 0 || errno != EINTR)
      throw SystemError(got == 0 ? ECONNRESET : errno, "left before it introduced itself");
  }
  return true;
}

// The caller's rank. Throws a Refusal with the reason if the caller is not welcome.
Rank examine(const Caller& caller, const rendezvous::Meeting& meeting, const std::set<Rank>& expected) {
  const auto claim = rendezvous::verify(meeting.data_secret(), caller.greeting, caller.introduction);
  if (!claim) throw Refusal("its secret differs");
  if (claim->purpose != Claim::data) throw Refusal("it wants the store, this is a data port");
  if (claim->generation != meeting.me().generation) throw Refusal("it belongs to an older start");
  if (claim->world != meeting.me().size || !expected.contains(claim->rank))
    throw Refusal(fmt::format("nobody waits for rank {} of {} here", claim->rank, claim->world));
  return claim->rank;
}

// Throws PeerDied if the process of an awaited rank on this host has ended. Such a rank will neither call nor answer.
void look_for_dead(const rendezvous::Meeting& meeting, const std::set<Rank>& awaited) {
  for (const Rank rank : awaited) {
    const rendezvous::Peer& peer = meeting.peers()[index_of(rank)];
    if (peer.host != meeting.peers()[static_cast<std::size_t>(meeting.me().rank)].host) continue;
    if (rendezvous::process_is(peer.pid, peer.started)) continue;
    const std::string fate = meeting.fate_of(rank, 200ms);
    throw PeerDied(
        ErrorFacts{.rank = meeting.me().rank,
                   .message = fmt::format("stopped because rank {} died ({}) while the ranks were connecting", rank,
                                          fate.empty() ? "status unknown" : fate),
                   .peer = rank});
  }
}

// Accepts the data connections of expected peers.
class Reception {
 public:
  Reception(const rendezvous::Listener& listener, const rendezvous::Meeting& meeting, std::set<Rank> expected,
            const std::function<void(Rank, Fd)>& welcome)
      : listener_(listener), meeting_(meeting), expected_(std::move(expected)), welcome_(welcome) {}

  void run(const std::function<void()>& on_wait) {
    while (!expected_.empty()) {
      if (deadline_.passed())
        throw TimedOut(fmt::format("rank {}: no connection from rank {} within {:.3g} s", meeting_.me().rank,
                                   fmt::join(expected_, ", "), deadline_.seconds()),
                       "see whether that rank is stopped, or cannot reach " + listener_.address.text());
      wait();
      if (on_wait) on_wait();
      if (look_at_.passed()) {
        look_for_dead(meeting_, expected_);
        look_at_ = Deadline::in(kLookEvery);
      }
      std::erase_if(callers_, [&](Caller& caller) { return !keep(caller); });
      accept_some();
    }
  }

 private:
  void wait() {
    entries_.assign(1, {listener_.fd.get(), static_cast<short>(deaf_until_.passed() ? POLLIN : 0), 0});
    for (const Caller& caller : callers_) entries_.push_back({caller.fd.get(), POLLIN, 0});
    ::poll(entries_.data(), entries_.size(), deadline_.poll_ms(deaf_until_.passed() ? 100ms : kDeafFor));
  }

  // Serves one caller. Returns false when it is done: the caller was welcomed, it was refused, or it is gone.
  bool keep(Caller& caller) {
    Rank rank = -1;
    try {
      if (!read_introduction(caller)) {
        // It is dropped without an answer, because it may be a rank that is merely slow. Such a rank finds the
        // connection closed and calls again.
        if (caller.by.passed()) complain(caller, "did not introduce itself in time");
        return !caller.by.passed();
      }
      rank = examine(caller, meeting_, expected_);
      const auto answer = rendezvous::accept(meeting_.data_secret(), caller.greeting, caller.introduction);
      rendezvous::write_all(caller.fd, bytes_of(answer), deadline_.sooner(kPatience));
    } catch (const SystemError& error) {  // the caller hung up; a rank calls again
      complain(caller, error.what());
      return false;
    } catch (const TimedOut& error) {
      complain(caller, error.what());
      return false;
    } catch (const Refusal& refusal) {
      complain(caller, refusal.what());
      const auto answer = rendezvous::refuse(refusal.what());
      ::send(caller.fd.get(), &answer, sizeof answer, MSG_NOSIGNAL | MSG_DONTWAIT);
      return false;
    }
    expected_.erase(rank);
    welcome_(rank, std::move(caller.fd));  // an exception from welcome_ ends the reception
    return false;
  }

  void accept_some() {
    for (int accepted = 0; accepted < kAcceptsAtATime && deaf_until_.passed(); ++accepted) {
      Fd fd = rendezvous::accept_from(listener_.fd);
      if (!fd) {
        const int error = errno;
        if (!rendezvous::out_of_descriptors(error)) return;
        return make_room(error);
      }
      without_descriptor_.reset();
      if (listener_.address.is_unix() && rendezvous::peer_uid(fd) != ::geteuid()) {
        warn_of_another_user(fd);
        continue;
      }
      if (callers_.size() >= kMaxCallers) callers_.pop_front();
      Caller& caller = callers_.emplace_back(std::move(fd));
      ::send(caller.fd.get(), &caller.greeting, sizeof caller.greeting, MSG_NOSIGNAL);
    }
  }

  // Drops the oldest caller, so that its descriptor becomes free for the next one. If there is no caller, this process
  // itself has too many descriptors open.
  void make_room(int error) {
    if (!callers_.empty()) {
      callers_.pop_front();
      return;
    }
    deaf_until_ = Deadline::in(kDeafFor);
    if (!without_descriptor_) without_descriptor_ = Deadline::in(kDeafAtMost);
    if (without_descriptor_->passed())
      throw SystemError(error,
                        fmt::format("rank {} cannot accept the connection of rank {}", meeting_.me().rank,
                                    fmt::join(expected_, ", ")),
                        "a higher `ulimit -n`");
  }

  // Logs why a caller was dropped. A caller that sent nothing is not worth a warning: a rank that finds this one busy
  // leaves like that, and calls again.
  void complain(const Caller& caller, const std::string& why) {
    const bool warn = caller.got > 0 && strangers_++ == 0;
    log::line(warn ? log::Level::warn : log::Level::debug,
              "rank {} dropped {}: {} (further ones are logged at debug level)", meeting_.me().rank,
              rendezvous::describe_peer(caller.fd), why);
  }

  void warn_of_another_user(const Fd& fd) {
    log::line(strangers_++ == 0 ? log::Level::warn : log::Level::debug,
              "rank {} dropped {}: belongs to another user (further ones are logged at debug level)",
              meeting_.me().rank, rendezvous::describe_peer(fd));
  }

  const rendezvous::Listener& listener_;
  const rendezvous::Meeting& meeting_;
  std::set<Rank> expected_;
  const std::function<void(Rank, Fd)>& welcome_;
  const Deadline deadline_ = meeting_.deadline();
  std::deque<Caller> callers_;
  std::vector<pollfd> entries_;
  Deadline look_at_ = Deadline::in(kLookEvery);  // when the processes of the expected ranks are checked next
  Deadline deaf_until_ = Deadline::in(0s);
  std::optional<Deadline> without_descriptor_;  // when to give up; set while no descriptor is left
  int strangers_ = 0;
};

}  // namespace

void receive_peers(const rendezvous::Listener& listener, const rendezvous::Meeting& meeting, std::set<Rank> expected,
                   const std::function<void(Rank, Fd)>& welcome, const std::function<void()>& on_wait) {
  Reception(listener, meeting, std::move(expected), welcome).run(on_wait);
}

Fd call_on_peer(Rank peer, const rendezvous::Address& address, const rendezvous::Meeting& meeting,
                const std::function<void()>& on_wait) {
  const Deadline deadline = meeting.deadline();
  const auto look = [&] {
    if (on_wait) on_wait();
    look_for_dead(meeting, {peer});
  };
  try {
    return rendezvous::dial(address, {meeting.data_secret(), meeting.data_claim(), true}, deadline, look);
  } catch (const TimedOut&) {
    throw TimedOut(fmt::format("rank {}: rank {} did not answer on {} within {:.3g} s", meeting.me().rank, peer,
                               address.text(), deadline.seconds()),
                   fmt::format("see whether rank {} is stopped", peer));
  }
}

}  // namespace lockstep::transport
