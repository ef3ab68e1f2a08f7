#include "lockstep/transport/shm/share.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/rendezvous/handshake.h"
#include "lockstep/transport/reception.h"

namespace lockstep::transport::shm {
namespace {

// A short text in a message of fixed size.
struct Note {
  char text[400] = {};
  static Note of(const std::string& text) {
    Note note;
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
    agree_with_first(problem);
    name = from_first(name);
    problem = problem_of([&] {
      if (first_) {
        receive_peers(
            door, meeting_, elsewhere(), [&](Rank, const Fd& connection) { send_descriptor(connection, region->fd()); },
            [&] { look_after_others(); });
      } else if ((region = find_region(name)) == nullptr) {
        const Fd connection = call_on_peer(rendezvous::Address::unix_socket(name), meeting_,
                                           [&] { look_after_others(); });  // the first may have left meanwhile
        const Deadline deadline = meeting_.deadline();
        while (!rendezvous::wait_readable(connection.get(), deadline.sooner(100ms))) {
          look_after_others();
          if (deadline.passed()) throw TimedOut(fmt::format("rank {} did not hand over the shared region", group_[0]));
        }
        region = Region::map(receive_descriptor(connection));
      }
    });
    agree(problem);
    return region;
  }

 private:
  template <typename Body>
  std::string problem_of(Body body) {
    try {
      body();
      return "";
    } catch (const PeerDied&) {
      throw;
    } catch (const std::exception& error) {
      return fmt::format("rank {}: {}", transport_.rank(), error.what());
    }
  }

  // A rank that dies while the others wait for its connection must be noticed.
  void look_after_others() {
    std::vector<Rank> others;
    for (const Rank rank : group_)
      if (rank != transport_.rank()) others.push_back(rank);
    transport_.look_after(others);
  }

  std::set<Rank> elsewhere() const {
    std::set<Rank> ranks;
    const auto pid_of = [&](Rank rank) { return meeting_.peers()[static_cast<std::size_t>(rank)].pid; };
    for (const Rank rank : group_)
      if (pid_of(rank) != pid_of(group_[0])) ranks.insert(rank);
    return ranks;
  }

  std::string from_first(const std::string& mine) {
    Note note = Note::of(mine);
    if (first_) {
      for (const Rank rank : group_.subspan(1)) transport_.send(rank, tag_, bytes_of(note));
    } else {
      transport_.recv(group_[0], tag_, writable_bytes_of(note));
    }
    return note.text;
  }

  // Throws on all ranks if the first has a problem.
  void agree_with_first(const std::string& problem) {
    const std::string found = from_first(problem);
    if (!found.empty()) throw Error(found);
  }

  // Throws on all ranks if one has a problem.
  void agree(std::string problem) {
    Note note = Note::of(problem);
    if (first_) {
      for (const Rank rank : group_.subspan(1)) {
        transport_.recv(rank, tag_, writable_bytes_of(note));
        if (problem.empty()) problem = note.text;
      }
    } else {
      transport_.send(group_[0], tag_, bytes_of(note));
    }
    agree_with_first(problem);
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
