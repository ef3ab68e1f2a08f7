#include "lockstep/world.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "lockstep/base/clock.h"
#include "lockstep/base/environment.h"
#include "lockstep/base/log.h"
#include "lockstep/error.h"
#include "lockstep/rendezvous/handshake.h"
#include "lockstep/rendezvous/meeting.h"
#include "lockstep/rendezvous/store_server.h"
#include "lockstep/transport.h"
#include "lockstep/transport/connect.h"
#include "lockstep/transport/shm/region.h"

namespace lockstep {

namespace {

// Makes stdout pass each line on when it ends, as on a terminal, if it is a launcher's pipe. Otherwise the C library
// would hold it back until 4 KB have come, and it would be lost if the rank crashes.
void let_lines_go() {
  struct stat about {};
  if (env("LOCKSTEP_LAUNCHER") && ::fstat(STDOUT_FILENO, &about) == 0 && S_ISFIFO(about.st_mode))
    std::setvbuf(stdout, nullptr, _IOLBF, 0);
}

}  // namespace

World World::from_environment() { return from_environment(transport::Options::from_environment()); }

World World::from_environment(const transport::Options& options) {
  check_variables();
  let_lines_go();
  return {rendezvous::Meeting::from_environment(), options};
}

World::World(std::unique_ptr<rendezvous::Meeting> meeting, const transport::Options& options)
    : options_(options), rank_(meeting->me().rank), size_(meeting->me().size), meeting_(std::move(meeting)) {
  if (size() > 1) transport_ = transport::connect(*meeting_, options);
}

int World::ranks_on_this_host() const { return static_cast<int>(meeting_->ranks_on_my_host().size()); }

World::~World() = default;
World::World(World&&) noexcept = default;
World& World::operator=(World&&) noexcept = default;

transport::Transport& World::transport() {
  if (!transport_)
    throw UsageError("a world of one has nobody to talk to", "start it with `lockstep run -n 2 -- program`");
  return *transport_;
}

void World::abort(const std::string& why) noexcept {
  const std::string text = without_backtrace(why);
  meeting_->report("error", text);
  if (transport_) transport_->abort(text);
}

void World::pass_on(Rank culprit, const std::string& why) noexcept {
  meeting_->report("waiting", why);
  if (transport_) transport_->pass_on(culprit, why, transport::Transport::Ending::failed);
}

namespace {

int run_rank(const std::function<World()>& make_world, const std::function<void(World&)>& body) noexcept {
  try {
    World world = make_world();
    try {
      body(world);
      if (world.lost().empty()) return kExitOk;
      world.meeting().report("error", world.lost());
      log::error("{}", world.lost());
      return kExitFailed;
    } catch (const PeerDied&) {
      throw;  // not this rank's fault, and already reported
    } catch (const transport::shm::Unavailable& error) {
      if (error.culprit() == world.rank())
        world.abort(error.what());
      else
        world.pass_on(error.culprit(), error.what());
      throw;
    } catch (const std::exception& error) {
      world.abort(without_backtrace(error.what()));
      throw;
    } catch (...) {
      world.abort("an exception of an unknown type");
      throw;
    }
  } catch (const Error& error) {
    log::error("{}", without_backtrace(error.what()));
    return error.exit_code();
  } catch (const std::exception& error) {
    log::error("{}", without_backtrace(error.what()));
    return kExitFailed;
  } catch (...) {
    log::error("an exception of an unknown type");
    return kExitFailed;
  }
}

}  // namespace

int rank_main(const std::function<void(World&)>& body) noexcept {
  return run_rank([] { return World::from_environment(); }, body);
}

int rank_main(const std::function<void(World&)>& body, const transport::Options& options) noexcept {
  return run_rank([&] { return World::from_environment(options); }, body);
}

void thread_world(int size, const std::function<void(World&)>& body, const transport::Options& options) {
  if (size < 1) throw UsageError(fmt::format("a world of {} ranks", size), "at least 1");
  rendezvous::Place place;
  place.secret = rendezvous::fresh_secret();
  place.address = rendezvous::Address::unix_socket("@lockstep-threads-" + place.secret.substr(0, 32));
  const rendezvous::StoreServer server({place.address, place.secret, size});

  std::mutex mutex;  // guards the two variables below
  std::exception_ptr cause;
  bool cause_is_own_fault = false;
  const auto run_rank = [&](Rank rank) {
    std::unique_ptr<World> world;
    try {
      rendezvous::Identity identity;
      identity.rank = identity.local_rank = rank;
      identity.size = identity.local_size = size;
      identity.source = "thread_world";
      world = std::make_unique<World>(std::make_unique<rendezvous::Meeting>(identity, place, 60s), options);
      body(*world);
      if (!world->lost().empty()) throw Error(world->lost());
    } catch (...) {
      bool own_fault = true;
      std::string why = "an exception of an unknown type";
      try {
        throw;
      } catch (const PeerDied&) {
        own_fault = false;
      } catch (const transport::shm::Unavailable& error) {
        own_fault = error.culprit() == rank;
        why = error.what();
      } catch (const std::exception& error) {
        why = error.what();
      } catch (...) {
      }
      if (own_fault && world) world->abort(why);
      const std::lock_guard lock(mutex);
      if (!cause || (own_fault && !cause_is_own_fault)) cause = std::current_exception();
      cause_is_own_fault = cause_is_own_fault || own_fault;
    }
  };
  std::vector<std::thread> ranks;
  for (Rank rank = 0; rank < size; ++rank) ranks.emplace_back(run_rank, rank);
  for (std::thread& rank : ranks) rank.join();
  if (cause) std::rethrow_exception(cause);
}

}  // namespace lockstep
