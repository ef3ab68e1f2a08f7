// A rank's world: the ranks it has met and the transport between them.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "lockstep/options.h"
#include "lockstep/types.h"

namespace lockstep {

namespace rendezvous {
class Meeting;
}
namespace transport {
class Transport;
}
namespace comm {
class Numbering;
}

class World {
 public:
  // Meets the other ranks as the environment describes. It is a world of one if the environment describes none.
  static World from_environment();
  static World from_environment(const transport::Options& options);
  // For Lockstep itself, like meeting() below.
  World(std::unique_ptr<rendezvous::Meeting> meeting, const transport::Options& options);
  ~World();
  World(World&&) noexcept;
  World& operator=(World&&) noexcept;

  Rank rank() const { return rank_; }
  int size() const { return size_; }
  int ranks_on_this_host() const;
  Rank next_rank() const { return (rank() + 1) % size(); }
  Rank prev_rank() const { return (rank() + size() - 1) % size(); }
  rendezvous::Meeting& meeting() { return *meeting_; }
  const transport::Options& options() const { return options_; }
  // Messages between ranks (transport.h). Throws UsageError in a world of one, where there is nobody to talk to.
  transport::Transport& transport();

  // Notes what went wrong at the end, when nothing could be thrown any more: a file that the user asked for could not
  // be written, or ranks disagree about their last collective. rank_main() reports it and fails. Only the first text is
  // kept, and an empty text is ignored.
  void note_lost(const std::string& why) {
    if (lost_.empty()) lost_ = why;
  }
  const std::string& lost() const { return lost_; }

  // Tells peers and launcher that this rank failed, and why.
  void abort(const std::string& why) noexcept;
  // Tells peers and launcher that this rank ends because another failed.
  void pass_on(Rank culprit, const std::string& why) noexcept;

 private:
  transport::Options options_;
  Rank rank_;
  int size_;
  std::string lost_;
  friend class comm::Numbering;
  std::shared_ptr<comm::Numbering> numbering_;  // of the communicators of this world; made with the first one
  std::unique_ptr<rendezvous::Meeting> meeting_;
  std::unique_ptr<transport::Transport> transport_;  // declared after meeting_, because it uses it
};

// The main() of a rank: makes the world and runs `body`. If that throws, it prints a message and tells the peers and
// the launcher. Returns the exit code. Without options, the environment says how messages travel.
int rank_main(const std::function<void(World&)>& body) noexcept;
int rank_main(const std::function<void(World&)>& body, const transport::Options& options) noexcept;

// Runs `body` on `size` ranks that are threads of this process, over the same transports. Rethrows the exception of the
// first rank that failed by its own fault, or of the first rank that failed if there is none.
void thread_world(int size, const std::function<void(World&)>& body, const transport::Options& options = {});

}  // namespace lockstep
