// The memory of another rank, which is copied from or to in one step: with process_vm_readv and process_vm_writev
// between processes, and with memcpy between threads of one process. A kernel may forbid the former (ptrace_scope,
// seccomp); a trial at the start tells. These system calls take a pid, so each one first checks whether the pid still
// belongs to the peer.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "lockstep/transport/peer_process.h"
#include "lockstep/types.h"

namespace lockstep::transport::shm {

class PeerMemory {
 public:
  explicit PeerMemory(std::shared_ptr<const PeerProcess> process) : process_(std::move(process)) {}

  // Both return false if the kernel refused or the peer is gone.
  bool read(std::uint64_t from, Bytes into) const;
  bool write(std::uint64_t to, ConstBytes from) const;

 private:
  std::shared_ptr<const PeerProcess> process_;
};

}  // namespace lockstep::transport::shm
