// The process of another rank on this host. A pid alone does not name a process for good: once the process has ended,
// the kernel gives the number to another one. A pidfd and the start time do.
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
  // The process of a peer of this host. All users of one process share one pidfd. Throws SystemError when no descriptor
  // is left: that says nothing about the peer.
  static std::shared_ptr<const PeerProcess> of(const rendezvous::Peer& peer);

  explicit PeerProcess(const rendezvous::Peer& peer);

  int pid() const { return pid_; }
  bool is_this_process() const { return is_this_process_; }
  // Whether it has ended; waits for that as long as `patience`. Never true for this process itself.
  bool has_ended(std::chrono::milliseconds patience) const;
  // Whether the pid still names this process. Cheap: it looks only if the last look was 10 ms ago. A pid that has
  // become free comes round again only after all others, which takes longer.
  bool owns_pid() const;

 private:
  const int pid_;
  const std::uint64_t started_;
  const bool is_this_process_;
  Fd alive_;  // a pidfd: readable once the process has ended. None for this process, and where the kernel has no pidfds
  bool ended_before_ = false;                       // when we first looked, the pid was gone or another process's
  mutable std::atomic<std::int64_t> looked_at_{0};  // steady clock, nanoseconds
};

}  // namespace lockstep::transport
