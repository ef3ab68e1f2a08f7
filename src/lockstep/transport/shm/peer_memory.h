// Another rank's memory, copied from or to in one step: process_vm_readv and process_vm_writev between processes,
// memcpy between threads of one. Kernels may forbid the former (ptrace_scope, seccomp); a trial at the start tells.
#pragma once

#include <cstdint>

#include "lockstep/base/types.h"

namespace lockstep::transport::shm {

class PeerMemory {
 public:
  PeerMemory() = default;
  explicit PeerMemory(int pid);

  // Both are false when the kernel refused or the peer is gone.
  bool read(std::uint64_t from, Bytes into) const;
  bool write(std::uint64_t to, ConstBytes from) const;

 private:
  int pid_ = 0;
  bool same_process_ = false;
};

}  // namespace lockstep::transport::shm
