#include "lockstep/transport/shm/share.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <vector>

#include "lockstep/base/clock.h"
#include "lockstep/error.h"
#include "lockstep/rendezvous/handshake.h"
#include "lockstep/transport/reception.h"

namespace lockstep::transport::shm {
namespace {

// A message of fixed size: a short text, and the rank that it is about.
struct Note {
  Rank rank = -1;
  char text[400] = {};
  static Note of(Rank rank, const std::string& text) {
    Note note;
    note.rank = rank;
    std::memcpy(note.text, text.data(), std::min(text.size(), sizeof note.text - 1));
    return note;
  }
};

class Sharing {
 public:
  Sharing(rendezvous::Meeting& meeting, Transport& transport, std::span<const Rank> group, Tag tag)
      : meeting_(meeting), transport_(transport), group_(group), tag_(tag), first_(transport.rank() == group[0]) {}

  std::shared_ptr<Region> make(std::size_t bytes, const std::string& dir) {
    std::shared_ptr<Region> region;
    rendezvous::Listener door;
    std::string name;
    std::string problem;
    if (first_) {
      name = fmt::format("@lockstep-shm-{}", rendezvous::fresh_secret().substr(0, 32));
      problem = problem_of([&] {
        region = Region::create(bytes, dir);
        list_region(name, region);
        door = rendezvous::listen_on(rendezvous::Address::unix_socket(name));
      });
    }
    agree_with_first(Note::of(transport_.rank(), problem));
    name = from_first(Note::of(transport_.rank(), name)).text;
    problem = problem_of([&] {
      if (first_) {
        receive_peers(
            door, meeting_, elsewhere(), [&](Rank, const Fd& connection) { send_descriptor(connection, region->fd()); },
            [&] { look_after_others(); });
      } else if ((region = find_region(name)) == nullptr) {
        const Fd connection = call_on_peer(group_[0], rendezvous::Address::unix_socket(name), meeting_,
                                           [&] { look_after_others(); });  // the first rank may have left meanwhile
        const Deadline deadline = meeting_.deadline();
        while (!rendezvous::wait_readable(connection.get(), deadline.sooner(100ms))) {
          look_after_others();
          if (deadline.passed()) throw TimedOut(fmt::format("rank {} did not hand over the shared region", group_[0]));
        }
        region = Region::map(receive_descriptor(connection), bytes, dir);
      }
    });
    agree(problem);
    return region;
  }

 private:
  // Runs `body`, and returns why it failed, or an empty text. A peer that is dead or does not come is not such a
  // failure: it ends the job, so PeerDied and TimedOut are passed on.
  template <typename Body>
  std::string problem_of(Body body) {
    try {
      body();
      return "";
    } catch (const PeerDied&) {
      throw;
    } catch (const TimedOut&) {
      throw;
    } catch (const std::exception& error) {
      return error.what();
    }
  }

  // Called while this rank waits for a connection, so that the death of another rank is noticed.
  void look_after_others() {
    std::vector<Rank> others;
    for (const Rank rank : group_)
      if (rank != transport_.rank()) others.push_back(rank);
    transport_.look_after(others);
  }

  std::set<Rank> elsewhere() const {
    std::set<Rank> ranks;
    const auto pid_of = [&](Rank rank) { return meeting_.peers()[index_of(rank)].pid; };
    for (const Rank rank : group_)
      if (pid_of(rank) != pid_of(group_[0])) ranks.insert(rank);
    return ranks;
  }

  Note from_first(Note note) {
    if (first_) {
      for (const Rank rank : group_.subspan(1)) transport_.send(rank, tag_, bytes_of(note));
    } else {
      transport_.recv(group_[0], tag_, writable_bytes_of(note));
    }
    return note;
  }

  // Throws Unavailable on all ranks if the first rank has a problem or has heard of one.
  void agree_with_first(const Note& problem) {
    const Note found = from_first(problem);
    if (found.text[0] != '\0') throw Unavailable(found.rank, found.text);
  }

  // Throws Unavailable on all ranks if one of them has a problem.
  void agree(const std::string& problem) {
    Note first_problem = Note::of(transport_.rank(), problem);
    if (first_) {
      for (const Rank rank : group_.subspan(1)) {
        Note note;
        transport_.recv(rank, tag_, writable_bytes_of(note));
        if (first_problem.text[0] == '\0') first_problem = note;
      }
    } else {
      transport_.send(group_[0], tag_, bytes_of(first_problem));
    }
    agree_with_first(first_problem);
  }

  rendezvous::Meeting& meeting_;
  Transport& transport_;
  std::span<const Rank> group_;
  Tag tag_;
  bool first_;
};

}  // namespace

std::shared_ptr<Region> share_region(rendezvous::Meeting& meeting, Transport& transport, std::span<const Rank> group,
                                     Tag tag, std::size_t bytes, const std::string& dir) {
  return Sharing(meeting, transport, group, tag).make(bytes, dir);
}

}  // namespace lockstep::transport::shm
