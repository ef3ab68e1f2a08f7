// Connects the ranks of a host through a shared region. Rank 0 makes the region and hands its descriptor to the others
// over a Unix socket. All ranks then agree whether that worked, so that either all of them use shared memory or none
// does.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <set>

#include "lockstep/base/clock.h"
#include "lockstep/base/log.h"
#include "lockstep/error.h"
#include "lockstep/rendezvous/handshake.h"
#include "lockstep/transport/reception.h"
#include "lockstep/transport/shm/shm_endpoint.h"

namespace lockstep::transport::shm {
namespace {

using rendezvous::Address;
using rendezvous::Meeting;

// What a rank reports if it stopped only because another rank has a problem. Such a rank is never blamed.
constexpr const char* kBecauseOfAnother = "stopped because another rank gave up";

class GaveUp : public Error {
 public:
  GaveUp() : Error(kBecauseOfAnother) {}
};

// Every rank says whether it succeeded; `problem` is empty if so. Throws Unavailable on all ranks if one did not.
void agree(Meeting& meeting, const std::string& step, const std::string& problem) {
  const auto problems = meeting.exchange(step, problem);
  for (std::size_t rank = 0; rank < problems.size(); ++rank)
    if (!problems[rank].empty() && problems[rank] != kBecauseOfAnother)
      throw Unavailable(static_cast<Rank>(rank), problems[rank]);
}

// Runs `body`, and returns why shared memory is not available, or an empty text. A peer that is dead or does not come
// is not such a reason: it ends the job, so PeerDied and TimedOut are passed on.
template <typename Body>
std::string problem_of(Body body) {
  try {
    body();
    return "";
  } catch (const PeerDied&) {
    throw;
  } catch (const TimedOut&) {
    throw;
  } catch (const Error& error) {
    return error.what();
  }
}

// Used while a rank waits for others to connect. It checks now and then whether one of them has given up and has said
// so under `step`. Then look() throws, so that this rank gives up, too, and all ranks agree on what the other rank's
// problem was.
class Others {
 public:
  Others(const Meeting& meeting, std::string step, std::set<Rank> ranks)
      : meeting_(meeting), step_(std::move(step)), ranks_(std::move(ranks)) {}
  void look() {
    if (!next_look_.passed()) return;
    next_look_ = Deadline::in(200ms);
    for (const Rank rank : ranks_)
      if (!meeting_.given(step_, rank).value_or("").empty()) throw GaveUp();
  }

 private:
  const Meeting& meeting_;
  const std::string step_;
  const std::set<Rank> ranks_;
  Deadline next_look_ = Deadline::in(200ms);
};

// The ranks that get the descriptor. Ranks that are threads of rank 0's process share its mapping instead.
std::set<Rank> ranks_elsewhere(const Meeting& meeting) {
  std::set<Rank> ranks;
  for (const auto& peer : meeting.peers())
    if (peer.pid != meeting.peers()[0].pid) ranks.insert(peer.rank);
  return ranks;
}

}  // namespace

std::unique_ptr<Transport> connect(Meeting& meeting, const Options& options, const EndpointCallbacks& callbacks) {
  const int size = meeting.me().size;
  const std::size_t queue_bytes =
      options.queue_bytes != 0 ? options.queue_bytes : RegionLayout::default_queue_bytes(size);
  std::shared_ptr<Region> region;
  rendezvous::Listener door;
  std::string problem;
  std::string name;
  if (meeting.me().rank == 0) {
    name = fmt::format("@lockstep-shm-{}", rendezvous::fresh_secret().substr(0, 32));
    problem = problem_of([&] {
      region = Region::create(RegionLayout::bytes_needed(size, queue_bytes), options.shm_dir);
      list_region(name, region);
      door = rendezvous::listen_on(Address::unix_socket(name));
    });
  }
  name = meeting.exchange("shm/door", name)[0];
  agree(meeting, "shm/made", problem);

  const bool first = meeting.me().rank == 0;
  Others others(meeting, "shm/mapped", first ? ranks_elsewhere(meeting) : std::set<Rank>{0});
  problem = problem_of([&] {
    if (first) {
      receive_peers(
          door, meeting, ranks_elsewhere(meeting),
          [&](Rank, const Fd& connection) { send_descriptor(connection, region->fd()); }, [&] { others.look(); });
    } else if ((region = find_region(name)) == nullptr) {
      const Fd connection = call_on_peer(0, Address::unix_socket(name), meeting, [&] { others.look(); });
      if (!rendezvous::wait_readable(connection.get(), meeting.deadline()))
        throw TimedOut(fmt::format("rank {}: rank 0 did not hand over the shared region", meeting.me().rank),
                       "see whether rank 0 is stopped");
      region =
          Region::map(receive_descriptor(connection), RegionLayout::bytes_needed(size, queue_bytes), options.shm_dir);
    }
  });
  std::unique_ptr<ShmEndpoint> endpoint;
  if (problem.empty())
    problem =
        problem_of([&] { endpoint = std::make_unique<ShmEndpoint>(meeting, region, queue_bytes, options, callbacks); });
  agree(meeting, "shm/mapped", problem);
  endpoint->try_single_copy();
  meeting.barrier("shm/tried");
  log::debug("rank {}: shm is up, {} region, {} queues", meeting.me().rank, describe_bytes(region->size()),
             describe_bytes(queue_bytes));
  return endpoint;
}

}  // namespace lockstep::transport::shm
