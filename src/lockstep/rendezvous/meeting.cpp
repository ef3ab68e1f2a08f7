#include "lockstep/rendezvous/meeting.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <sstream>

#include "lockstep/base/clock.h"
#include "lockstep/base/cpu.h"
#include "lockstep/base/environment.h"
#include "lockstep/base/log.h"
#include "lockstep/error.h"
#include "lockstep/rendezvous/dial.h"
#include "lockstep/rendezvous/socket.h"

namespace lockstep::rendezvous {
namespace {

// A peer as text, one line per field.
std::string encode(const Peer& peer) {
  return fmt::format("{}\n{}\n{}\n{}\n", peer.host, peer.hostname, peer.pid, peer.started);
}

Peer decode(Rank rank, const std::string& text) {
  Peer peer;
  peer.rank = rank;
  std::istringstream lines(text);
  std::getline(lines, peer.host);
  std::getline(lines, peer.hostname);
  lines >> peer.pid >> peer.started;
  if (!lines) throw Error(fmt::format("rank {} introduced itself with a text that makes no sense", rank));
  return peer;
}

// The user who listens on a Unix socket, or nothing if nobody listens there any more.
std::optional<uid_t> owner_of(const Address& address) {
  try {
    return peer_uid(connect_to(address, Deadline::in(100ms)));
  } catch (const Error&) {
    return std::nullopt;
  }
}

std::unique_ptr<StoreServer> serve(const Identity& identity, const Place& place) {
  try {
    return std::make_unique<StoreServer>(
        StoreServer::Options{place.address, place.secret, identity.size, identity.generation, place.check_uid});
  } catch (const SystemError& error) {
    if (error.code() != EADDRINUSE || !place.check_uid) throw;
    const bool abstract = place.address.path.starts_with('@');
    if (const auto owner = owner_of(place.address); owner && *owner != ::geteuid())
      throw Error(
          fmt::format("rank 0 cannot listen on {}: {} has taken the name", place.address.text(), describe_user(*owner)),
          abstract ? "LOCKSTEP_JOB=some-name on every rank, which gives the job another name"
                   : "another path in LOCKSTEP_STORE");
    if (!abstract)
      throw Error(
          fmt::format("rank 0 cannot listen on {}: something of that name is there already", place.address.text()),
          "another path in LOCKSTEP_STORE, or remove what is there");
    throw Error("another rank 0 of this user already meets its peers under this job's name",
                "LOCKSTEP_JOB=some-name (or another MASTER_PORT) to run two jobs from one shell");
  }
}

}  // namespace

Meeting::Meeting(const Identity& identity, const Place& place, Duration timeout)
    : identity_(identity), place_(place), timeout_(timeout), instance_(fresh_instance()), pid_(::getpid()) {
  const Peer self{identity.rank, host_identity(), hostname(), ::getpid(), process_start_time(::getpid())};
  if (identity.size == 1) {
    peers_ = {self};
    return;
  }
  if (place.serve) server_ = serve(identity, place);
  const Deadline by = deadline();
  log::debug("rank {} of {} ({}): meeting on {}", identity.rank, identity.size, identity.source, place.address.text());
  store_ = reach_store(by);
  const auto texts = exchange("rank", encode(self));
  for (Rank rank = 0; rank < identity.size; ++rank) peers_.push_back(decode(rank, texts[index_of(rank)]));
  data_secret_ = place.secret.empty() ? exchange("secret", identity.rank == 0 ? fresh_secret() : "")[0] : place.secret;
  log::debug("rank {}: all {} ranks are here", identity.rank, identity.size);
}

Meeting::~Meeting() {
  if (server_ && compared_ && !in_forked_child()) server_->comparisons_end_within(1s);
}

std::unique_ptr<StoreClient> Meeting::reach_store(const Deadline& by) const {
  const Claim claim{Claim::store, identity_.rank, identity_.size, identity_.generation, instance_};
  try {
    return std::make_unique<StoreClient>(place_.address, place_.secret, claim, by, place_.check_uid);
  } catch (const TimedOut&) {
    if (place_.by_launcher || place_.serve) throw;
    throw TimedOut(fmt::format("rank {}: rank 0, which serves the store on {}, did not come within {:.3g} s",
                               identity_.rank, place_.address.text(), by.seconds()),
                   "see whether rank 0 started, and with the same job and WORLD_SIZE");
  }
}

bool Meeting::in_forked_child() const { return ::getpid() != pid_; }

std::unique_ptr<Meeting> Meeting::from_environment() {
  const Identity identity = identity_from_environment();
  if (identity.local_size > 1 && !env("OMP_NUM_THREADS")) {
    const int threads = threads_per_rank(identity.local_size);
    limit_math_threads(threads);
    if (identity.local_rank == 0)
      log::warn("OMP_NUM_THREADS is not set: using {} so that {} ranks share {} cores", threads, identity.local_size,
                allowed_cores());
  }
  const Place place = identity.size > 1 ? place_from_environment(identity) : Place{};
  return std::make_unique<Meeting>(identity, place, env_seconds("LOCKSTEP_RENDEZVOUS_TIMEOUT", 300s));
}

std::vector<Rank> Meeting::ranks_on_my_host() const {
  const std::string& mine = peers_[static_cast<std::size_t>(identity_.rank)].host;
  std::vector<Rank> ranks;
  for (const Peer& peer : peers_)
    if (peer.host == mine) ranks.push_back(peer.rank);
  return ranks;
}

bool Meeting::all_on_one_host() const { return ranks_on_my_host().size() == peers_.size(); }

std::string Meeting::my_address_towards_store() const {
  return store_ && !place_.address.is_unix() ? store_->local_host() : "127.0.0.1";
}

std::vector<std::string> Meeting::exchange(const std::string& name, const std::string& mine) {
  if (!store_) return {mine};
  const Deadline by = deadline();
  store_->set(fmt::format("{}/{}", name, identity_.rank), mine, by);
  std::vector<std::string> texts;
  for (Rank rank = 0; rank < identity_.size; ++rank) texts.push_back(wait_for(name, rank, by));
  barrier(name + "/all");  // nobody may leave before all have read, least of all the rank that serves the store
  return texts;
}

std::optional<std::string> Meeting::given(const std::string& name, Rank rank) const {
  if (!store_) return std::nullopt;
  return store_->get(fmt::format("{}/{}", name, rank), deadline());
}

void Meeting::barrier(const std::string& name) {
  if (!store_) return;
  const Deadline by = deadline();
  if (!store_->barrier(name, identity_.size, by))
    throw TimedOut(
        fmt::format("rank {}: not all ranks passed '{}' within {:.3g} s", identity_.rank, name, by.seconds()));
}

std::string Meeting::wait_for(const std::string& prefix, Rank rank, const Deadline& by) {
  auto text = store_->wait(fmt::format("{}/{}", prefix, rank), by);
  if (!text) throw_missing(prefix, by);
  return std::move(*text);
}

void Meeting::throw_missing(const std::string& prefix, const Deadline& by) {
  std::vector<Rank> missing;
  for (Rank rank = 0; rank < identity_.size; ++rank)
    if (!store_->get(fmt::format("{}/{}", prefix, rank), Deadline::in(5s))) missing.push_back(rank);
  throw TimedOut(fmt::format("{} of {} ranks came within {:.3g} s, missing: {}",
                             static_cast<std::size_t>(identity_.size) - missing.size(), identity_.size, by.seconds(),
                             fmt::join(missing, ", ")),
                 "see whether they started, and with the same job, WORLD_SIZE and LOCKSTEP_SECRET "
                 "(LOCKSTEP_RENDEZVOUS_TIMEOUT waits longer)");
}

std::optional<std::string> Meeting::compare(const std::string& name, const std::string& mine, int count) noexcept {
  if (!store_ || in_forked_child()) return std::nullopt;
  compared_ = true;
  try {
    return store_->compare(name, mine, count, Deadline::in(2s));
  } catch (const std::exception& error) {
    log::debug("rank {}: could not compare with the others: {}", identity_.rank, error.what());
    return std::nullopt;
  }
}

void Meeting::report(const char* kind, const std::string& text) noexcept {
  if (!store_ || in_forked_child()) return;  // a forked child must not use its parent's connection
  try {
    store_->set(fmt::format("{}/{}", kind, identity_.rank), text.substr(0, 4096), Deadline::in(500ms));
  } catch (const std::exception& error) {
    log::debug("rank {}: could not report to the store: {}", identity_.rank, error.what());
  }
}

std::string Meeting::fate_of(Rank rank, Duration patience) const noexcept {
  if (!store_ || in_forked_child()) return "";
  try {
    return store_->wait(fmt::format("exit/{}", rank), Deadline::in(patience)).value_or("");
  } catch (const std::exception& error) {
    log::debug("rank {}: the store could not say how rank {} ended: {}", identity_.rank, rank, error.what());
    return "";
  }
}

Claim Meeting::data_claim() const {
  return {Claim::data, identity_.rank, identity_.size, identity_.generation, instance_};
}

}  // namespace lockstep::rendezvous
