// The process of another rank on this host. A pid alone does not identify a process for ever, because the kernel gives
// it to another process after the first has ended. A pidfd does, and so does a pid with its start time.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>

#include "lockstep/base/fd.h"
#include "lockstep/rendezvous/meeting.h"

namespace lockstep::transport {

// May be used by several threads at once.
class PeerProcess {
 public:
  // The process of a peer on this host. All users of one process share one pidfd. Throws SystemError if no descriptor
  // is left, which says nothing about the peer.
  static std::shared_ptr<const PeerProcess> of(const rendezvous::Peer& peer);

  explicit PeerProcess(const rendezvous::Peer& peer);

  int pid() const { return pid_; }
  bool is_this_process() const { return is_this_process_; }
  // Whether the process has ended. Waits for that for at most `patience`. Never true for this process itself.
  bool has_ended(std::chrono::milliseconds patience) const;
  // Whether the pid still belongs to this process. It is cheap, because the answer of a check is trusted for 10 ms. The
  // kernel reuses a pid only after it has used all others, which takes longer.
  bool owns_pid() const;

 private:
  const int pid_;
  const std::uint64_t started_;
  const bool is_this_process_;
  Fd alive_;  // pidfd, readable once the process has ended; empty for this process, and if the kernel has no pidfds
  bool ended_before_ = false;                       // the process had already ended when this object was made
  mutable std::atomic<std::int64_t> looked_at_{0};  // time of the last check, in nanoseconds of Clock
};

}  // namespace lockstep::transport
