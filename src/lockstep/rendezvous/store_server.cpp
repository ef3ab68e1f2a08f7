#include "lockstep/rendezvous/store_server.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include "lockstep/base/clock.h"
#include "lockstep/base/log.h"
#include "lockstep/base/thread.h"
#include "lockstep/error.h"
#include "lockstep/rendezvous/store_connection.h"

namespace lockstep::rendezvous {
namespace {

constexpr std::size_t kMaxStrangers = 512;  // connections that have not proved that they belong to the job
// How many connections are accepted before the existing ones are read from. In a flood, a rank must be able to
// introduce itself before it is the oldest stranger.
constexpr int kAcceptsAtATime = 64;

}  // namespace

StoreServer::StoreServer(Options options)
    : options_(std::move(options)),
      pid_(::getpid()),
      listener_(listen_on(options_.address)),
      wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (!wake_) throw SystemError(errno, "cannot make an eventfd");
  thread_ = thread_without_signals("the thread that serves the store", [this] { serve(); });
}

StoreServer::~StoreServer() {
  if (::getpid() != pid_) {  // in a forked child: the thread exists only in the parent
    thread_.detach();
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake();
  thread_.join();
  if (options_.address.is_unix() && options_.address.path.front() != '@') ::unlink(options_.address.path.c_str());
}

void StoreServer::wake() const {
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto written = ::write(wake_.get(), &one, sizeof one);
}

void StoreServer::set(const std::string& key, const std::string& value) {
  {
    const std::lock_guard lock(mutex_);
    set_locked(key, value);
  }
  wake();
}

std::optional<std::string> StoreServer::get(const std::string& key) const {
  const std::lock_guard lock(mutex_);
  const auto found = values_.find(key);
  if (found == values_.end()) return std::nullopt;
  return found->second;
}

bool StoreServer::comparisons_end_within(Duration patience) const {
  const Deadline deadline = Deadline::in(patience);
  while (true) {
    {
      const std::lock_guard lock(mutex_);
      if (comparisons_.empty()) return true;
    }
    if (deadline.passed()) return false;
    std::this_thread::sleep_for(1ms);
  }
}

std::set<Rank> StoreServer::ranks_seen() const {
  const std::lock_guard lock(mutex_);
  std::set<Rank> ranks;
  for (const auto& [rank, instance] : instances_) ranks.insert(rank);
  return ranks;
}

void StoreServer::serve() {
  try {
    serve_until_stopped();
  } catch (const std::exception& error) {
    {
      const std::lock_guard lock(mutex_);
      connections_.clear();  // clients notice that their connections are closed, and report it
      listener_.fd.reset();
    }
    try {
      log::error("the store on {} has stopped: {}", listener_.address.text(), error.what());
    } catch (const std::exception&) {  // there is no memory even for the message
    }
  }
}

void StoreServer::serve_until_stopped() {
  std::vector<pollfd> entries;
  std::optional<Deadline> last_call;  // set when stopping: until when replies are still sent
  while (true) {
    entries.clear();
    int timeout = 0;
    {
      const std::lock_guard lock(mutex_);
      if (stopping_) {
        if (!last_call) last_call = Deadline::in(1s);
        const bool owing =
            std::any_of(connections_.begin(), connections_.end(), [](auto& c) { return !c->out.empty(); });
        if (!owing || last_call->passed()) return;
      }
      entries.push_back({wake_.get(), POLLIN, 0});
      entries.push_back({listener_.fd.get(), static_cast<short>(stopping_ || !deaf_until_.passed() ? 0 : POLLIN), 0});
      for (const auto& connection : connections_)
        entries.push_back(
            {connection->fd.get(), static_cast<short>(POLLIN | (connection->out.empty() ? 0 : POLLOUT)), 0});
      timeout = stopping_ ? 50 : next_timeout_ms();
    }
    if (::poll(entries.data(), entries.size(), timeout) < 0 && errno != EINTR) throw SystemError(errno, "poll failed");
    std::uint64_t drained = 0;
    [[maybe_unused]] const auto taken = ::read(wake_.get(), &drained, sizeof drained);

    const std::lock_guard lock(mutex_);
    for (std::size_t i = 2; i < entries.size(); ++i) {
      Connection& connection = *connections_[i - 2];
      if ((entries[i].revents & POLLOUT) != 0) flush(connection);
      if ((entries[i].revents & (POLLIN | POLLHUP | POLLERR)) != 0 && !connection.dead) hear(connection);
    }
    try {
      if ((entries[1].revents & POLLIN) != 0) accept_waiting();
    } catch (const std::bad_alloc&) {
      deaf_until_ = Deadline::in(50ms);
    }
    expire();
    std::erase_if(connections_, [](const auto& connection) { return connection->dead; });
  }
}

// A client that asks for more memory than there is must not end the store for all clients.
void StoreServer::hear(Connection& connection) {
  try {
    on_readable(connection);
  } catch (const std::bad_alloc&) {
    connection.dead = true;
    connection.in = {};
    connection.out = {};
    log::error(
        "the store has no memory left for what {} sent, and closed the connection; try: a higher `ulimit -v`, or "
        "fewer and shorter values",
        connection.name);
  }
}

void StoreServer::accept_waiting() {
  for (int accepted = 0; accepted < kAcceptsAtATime; ++accepted) {
    Fd fd = accept_from(listener_.fd);
    if (!fd && out_of_descriptors(errno)) {
      // Drop a stranger, so that its descriptor becomes free for a rank. It is closed before the next accept.
      if (!drop_oldest_stranger("was one of too many: no descriptor is left (try: a higher `ulimit -n`)"))
        deaf_until_ = Deadline::in(50ms);
      return;
    }
    if (!fd) break;
    auto connection = std::make_unique<Connection>(std::move(fd), options_.handshake_timeout);
    if (options_.check_uid && peer_uid(connection->fd) != ::geteuid()) {
      drop_stranger(*connection, "belongs to another user");
      continue;
    }
    connection->out.assign(reinterpret_cast<const char*>(&connection->greeting), sizeof connection->greeting);
    flush(*connection);
    connections_.push_back(std::move(connection));
  }
  // A flood of silent connections must not keep the ranks out, so the oldest strangers are dropped.
  auto strangers =
      std::count_if(connections_.begin(), connections_.end(), [](auto& c) { return !c->known && !c->dead; });
  while (strangers-- > static_cast<std::ptrdiff_t>(kMaxStrangers))
    drop_oldest_stranger("was one of too many that have not introduced themselves");
}

bool StoreServer::drop_oldest_stranger(const std::string& why) {
  for (auto& connection : connections_)
    if (!connection->known && !connection->dead) {
      drop_stranger(*connection, why);
      return true;
    }
  return false;
}

void StoreServer::on_readable(Connection& connection) {
  char buffer[16384];
  while (!connection.dead) {
    const ssize_t got = ::recv(connection.fd.get(), buffer, sizeof buffer, 0);
    if (got > 0) {
      connection.in.append(buffer, static_cast<std::size_t>(got));
      if (!connection.known) finish_handshake(connection);
      if (connection.known && !handle_frames(connection)) return;
    } else if (got == 0) {
      // A caller that sent nothing is not reported: it may be a rank that found the store busy and calls again.
      if (!connection.known && !connection.in.empty()) drop_stranger(connection, "left before it introduced itself");
      connection.dead = true;
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      return;
    } else if (errno != EINTR) {
      connection.dead = true;
    }
  }
}

void StoreServer::finish_handshake(Connection& connection) {
  if (connection.in.size() < sizeof(Introduction)) return;
  Introduction introduction;
  std::memcpy(&introduction, connection.in.data(), sizeof introduction);
  connection.in.erase(0, sizeof introduction);
  const auto claim = verify(options_.secret, connection.greeting, introduction);
  std::string objection =
      claim ? objection_to(*claim) : "its secret differs; try: the same LOCKSTEP_SECRET on every rank";
  const Answer answer =
      objection.empty() ? accept(options_.secret, connection.greeting, introduction) : refuse(objection);
  connection.out.append(reinterpret_cast<const char*>(&answer), sizeof answer);
  flush(connection);
  if (!claim) {
    drop_stranger(connection, "gave a wrong proof of the secret");
  } else if (!objection.empty()) {
    log::warn("the store refused {}: {}", connection.name, objection);
    connection.dead = true;
  } else {
    connection.known = true;
    connection.claim = *claim;
    tune_for_data(connection.fd, 30s);
    if (claim->rank >= 0) instances_[claim->rank] = claim->instance;
    log::debug("store: {} is rank {}", connection.name, claim->rank);
  }
}

std::string StoreServer::objection_to(const Claim& claim) const {
  if (claim.purpose != Claim::store) return "this is the store, not a data port";
  if (claim.rank < 0) return "";
  if (claim.generation != options_.generation)
    return fmt::format("rank {} is of start {}, this job is at start {}: it belongs to an older start", claim.rank,
                       claim.generation, options_.generation);
  if (claim.world != options_.world)
    return fmt::format("rank {} says the world has {} ranks, this job has {}; try: the same WORLD_SIZE on every rank",
                       claim.rank, claim.world, options_.world);
  if (claim.rank >= options_.world)
    return fmt::format("there is no rank {} in a world of {}", claim.rank, options_.world);
  const auto holder = instances_.find(claim.rank);
  if (holder != instances_.end() && holder->second != claim.instance)
    return fmt::format("rank {} is taken by another process; try: a different RANK for each process", claim.rank);
  return "";
}

void StoreServer::flush(Connection& connection) {
  while (!connection.out.empty() && !connection.dead) {
    const ssize_t sent = ::send(connection.fd.get(), connection.out.data(), connection.out.size(), MSG_NOSIGNAL);
    if (sent > 0)
      connection.out.erase(0, static_cast<std::size_t>(sent));
    else if (errno == EAGAIN || errno == EWOULDBLOCK)
      return;
    else if (errno != EINTR)
      connection.dead = true;
  }
}

void StoreServer::expire() {
  for (auto& connection : connections_) {
    if (connection->dead) continue;
    if (!connection->known && connection->handshake_by.passed()) {
      drop_stranger(*connection, "did not introduce itself in time");
    } else if (connection->awaited && connection->wait_by.passed()) {
      connection->awaited.reset();
      reply(*connection, wire::Status::timed_out, "");
    }
  }
}

int StoreServer::next_timeout_ms() const {
  auto timeout = std::chrono::milliseconds(60'000);
  if (!deaf_until_.passed()) timeout = std::chrono::milliseconds(deaf_until_.poll_ms());
  for (const auto& connection : connections_) {
    if (!connection->known) timeout = std::chrono::milliseconds(connection->handshake_by.poll_ms(timeout));
    if (connection->awaited) timeout = std::chrono::milliseconds(connection->wait_by.poll_ms(timeout));
  }
  return static_cast<int>(timeout.count());
}

void StoreServer::drop_stranger(Connection& connection, const std::string& why) {
  connection.dead = true;
  if (complaints_.insert(why).second)
    log::warn("the store dropped {}, which {} (further ones are logged at debug level)", connection.name, why);
  else
    log::debug("the store dropped {}, which {}", connection.name, why);
}

}  // namespace lockstep::rendezvous
