// The native engine: runs the collectives of one group of ranks over a transport and, if the ranks share memory,
// directly in that memory.
//
// Not thread-safe: collectives must take turns (order.h). Messages may be sent from any thread.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "lockstep/base/fork.h"
#include "lockstep/collectives/call.h"
#include "lockstep/collectives/direct.h"
#include "lockstep/comm/flight.h"
#include "lockstep/comm/options.h"
#include "lockstep/comm/watch.h"
#include "lockstep/trace/recorder.h"
#include "lockstep/transport/world.h"

namespace lockstep::comm {

class Native {
 public:
  // Collective over `group`, which lists ranks of the world in the order of their new numbers. `context` tells the
  // messages of this communicator from those of others.
  Native(World& world, std::vector<Rank> group, std::uint16_t context, const Options& options);
  Native(const Native&) = delete;

  const collectives::Party& party() const { return party_; }
  const Options& options() const { return options_; }
  World& world() { return world_; }
  // "communicator 3"
  std::string who() const;
  // Ends the communicator on all ranks with a Mismatch. Used if the result of a collective, which itself went well,
  // shows that the ranks disagree.
  [[noreturn]] void refuse(const std::string& why, const std::string& hint);

  void run(collectives::Call call, std::optional<Duration> timeout);
  // Collective.
  std::shared_ptr<Bytes> allocate(std::size_t bytes);
  std::shared_ptr<Bytes> allocate_common(std::size_t bytes);
  bool in_arena(const void* data) const;
  Algorithm choice(Op op, std::size_t bytes) const;
  // The transport's tag for a message of the user. Throws UsageError if `tag` is too large.
  Tag message_tag(Tag tag) const;

  // Sets the recorder for spans; null means that none are recorded.
  void trace_to(trace::Recorder* recorder) { recorder_ = recorder; }
  trace::Recorder* recorder() const { return recorder_; }
  bool failed() const { return failure_ != nullptr; }
  Tag trace_tag() const;

  // Says goodbye to the other ranks, and compares the last collective with theirs: if it was one in which ranks only
  // send, they have not heard from each other. A difference is noted in the world (World::note_lost), because nothing
  // may be thrown here.
  void leave() noexcept;

  // Makes the running collective give up. May be called from any thread.
  void interrupt() { watch_.stop(); }

 private:
  void execute(const collectives::Call& call, Algorithm algorithm, const transport::Label& fingerprint);
  void compare_sizes(std::size_t bytes, collectives::Call::Purpose purpose);
  std::shared_ptr<transport::shm::Region> share(std::size_t bytes);
  Algorithm default_for(Op op) const;
  [[noreturn]] void explain(const transport::Label& fingerprint);
  [[noreturn]] void disagree(const transport::Label& mine, const transport::WrongLabel& wrong);
  std::string dumped(const std::string& why);
  std::string name_note() const;

  World& world_;
  Options options_;
  const std::uint16_t context_;
  collectives::Party party_;
  Flight flight_;
  Watch watch_;
  std::unique_ptr<collectives::Direct> direct_;  // null if the ranks share no memory
  const Birthplace birthplace_;
  std::uint64_t sequence_ = 0;
  std::uint16_t history_ = 0;
  std::exception_ptr failure_;  // the error that every later call throws again
  trace::Recorder* recorder_ = nullptr;
};

}  // namespace lockstep::comm
