// Another rank's memory, copied from or to in one step: process_vm_readv and process_vm_writev between processes,
// memcpy between threads of one. Kernels may forbid the former (ptrace_scope, seccomp); a trial at the start tells.
// These calls take a pid, so each looks first whether the pid still names the peer.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "lockstep/base/types.h"
#include "lockstep/transport/peer_process.h"

namespace lockstep::transport::shm {

class PeerMemory {
 public:
  explicit PeerMemory(std::shared_ptr<const PeerProcess> process) : process_(std::move(process)) {}

  // Both are false when the kernel refused or the peer is gone.
  bool read(std::uint64_t from, Bytes into) const;
  bool write(std::uint64_t to, ConstBytes from) const;

 private:
  std::shared_ptr<const PeerProcess> process_;
};

}  // namespace lockstep::transport::shm
