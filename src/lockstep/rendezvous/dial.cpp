#include "lockstep/rendezvous/dial.h"

#include <fmt/format.h>
#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <optional>
#include <thread>

#include "lockstep/base/clock.h"
#include "lockstep/base/log.h"
#include "lockstep/error.h"
#include "lockstep/rendezvous/socket.h"

namespace lockstep::rendezvous {
namespace {

// How long an attempt waits for the greeting. The first attempt is short, because the kernel repeats a connection
// request that was lost in a full queue only after one second. Later attempts are longer, for a listener that is merely
// slow. After the greeting, silence does not lead to another attempt: the other side may already have accepted this
// connection.
constexpr auto kFirstTry = 1s;
constexpr auto kLongestTry = 4s;
constexpr auto kPause = 20ms;

void check_user(const Fd& connection, const Address& address, const Introducing& caller) {
  if (!caller.check_uid || !address.is_unix()) return;
  const uid_t owner = peer_uid(connection);
  if (owner == ::geteuid()) return;
  throw Error(fmt::format("{} belongs to {}, and this process to {}: another user has taken the name", address.text(),
                          describe_user(owner), describe_user(::geteuid())),
              caller.if_taken);
}

// Makes one attempt. Returns the connection, or nothing if the other side hung up or sent no greeting within
// `patience`. In the latter case `patience` grows.
std::optional<Fd> try_once(const Address& address, const Introducing& caller, const Deadline& deadline,
                           Duration& patience, const std::function<void()>& on_wait) {
  Fd connection = connect_to(address, deadline, on_wait);
  check_user(connection, address, caller);
  try {
    const Greeting greeting = read_greeting(connection, deadline.sooner(patience));
    introduce(connection, greeting, caller.secret, caller.claim, deadline);
    return connection;
  } catch (const SystemError& error) {
    // The other side hung up before the handshake was over. A flooded listener does that to make room. A refusal would
    // have come with a reason.
    if ((error.code() != ECONNRESET && error.code() != EPIPE) || deadline.passed()) throw;
    log::debug("{} hung up before the handshake was over; trying again", address.text());
  } catch (const TimedOut&) {
    if (deadline.passed()) throw;
    patience = std::min<Duration>(patience * 2, kLongestTry);
    log::debug("{} has not answered; trying again", address.text());
  }
  return std::nullopt;
}

}  // namespace

Fd dial(const Address& address, const Introducing& caller, const Deadline& deadline,
        const std::function<void()>& on_wait) {
  for (Duration patience = kFirstTry;;) {
    if (auto connection = try_once(address, caller, deadline, patience, on_wait)) return std::move(*connection);
    if (on_wait) on_wait();
    std::this_thread::sleep_for(std::min<Duration>(kPause, deadline.left()));
  }
}

std::string describe_user(unsigned uid) {
  std::array<char, 4096> buffer{};
  passwd entry{};
  passwd* found = nullptr;
  if (::getpwuid_r(uid, &entry, buffer.data(), buffer.size(), &found) != 0 || found == nullptr)
    return fmt::format("uid {}", uid);
  return fmt::format("{} (uid {})", found->pw_name, uid);
}

}  // namespace lockstep::rendezvous
