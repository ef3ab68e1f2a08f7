// The native engine: runs the collectives of one group of ranks over a transport and, where there is any, shared
// memory.
//
// Not thread-safe: collectives take turns (order.h). Messages may be sent from any thread.
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
  // Collective over `group`, ranks of the world in the order of the new numbers. `context` tells its messages apart.
  Native(World& world, std::vector<Rank> group, std::uint16_t context, const Options& options);
  Native(const Native&) = delete;

  const collectives::Party& party() const { return party_; }
  const Options& options() const { return options_; }
  World& world() { return world_; }
  // "communicator 3"
  std::string who() const;
  // Ends the communicator on all ranks with a Mismatch. For what the ranks have found out by a collective that went
  // well.
  [[noreturn]] void refuse(const std::string& why, const std::string& hint);

  void run(collectives::Call call, std::optional<Duration> timeout);
  // Collective.
  std::shared_ptr<Bytes> allocate(std::size_t bytes);
  std::shared_ptr<Bytes> allocate_common(std::size_t bytes);
  bool in_arena(const void* data) const;
  Algorithm choice(Op op, std::size_t bytes) const;
  // The tag of a user's message.
  Tag message_tag(Tag tag) const;

  // Where the spans go; null: nowhere.
  void trace_to(trace::Recorder* recorder) { recorder_ = recorder; }
  trace::Recorder* recorder() const { return recorder_; }
  bool failed() const { return failure_ != nullptr; }
  Tag trace_tag() const;

  // Says goodbye to the other ranks, and compares the last collective with theirs: ranks that only send in it have not
  // heard from each other. What differs is noted in the world, for nothing is thrown here.
  void leave() noexcept;

  // Makes what runs give up; from any thread.
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
  std::unique_ptr<collectives::Direct> direct_;  // none where ranks share no memory
  const Birthplace birthplace_;
  std::uint64_t sequence_ = 0;
  std::uint16_t history_ = 0;
  std::exception_ptr failure_;  // why every later call fails
  trace::Recorder* recorder_ = nullptr;
};

}  // namespace lockstep::comm
