#include "lockstep/transport/shm/peer_memory.h"

#include <sys/uio.h>

#include <cerrno>
#include <cstring>

namespace lockstep::transport::shm {
namespace {

// Repeats a partial transfer until all bytes are moved.
template <typename Call>
bool move_all(std::byte* here, std::uint64_t there, std::size_t bytes, Call call) {
  while (bytes > 0) {
    const iovec local{here, bytes};
    const iovec remote{reinterpret_cast<void*>(there), bytes};
    const ssize_t moved = call(local, remote);
    if (moved < 0 && errno == EINTR) continue;
    if (moved <= 0) return false;
    here += moved;
    there += static_cast<std::uint64_t>(moved);
    bytes -= static_cast<std::size_t>(moved);
  }
  return true;
}

}  // namespace

bool PeerMemory::read(std::uint64_t from, Bytes into) const {
  if (process_->is_this_process()) {
    std::memcpy(into.data(), reinterpret_cast<const void*>(from), into.size());
    return true;
  }
  if (!process_->owns_pid()) return false;
  return move_all(into.data(), from, into.size(), [&](const iovec& local, const iovec& remote) {
    return ::process_vm_readv(process_->pid(), &local, 1, &remote, 1, 0);
  });
}

bool PeerMemory::write(std::uint64_t to, ConstBytes from) const {
  if (process_->is_this_process()) {
    std::memcpy(reinterpret_cast<void*>(to), from.data(), from.size());
    return true;
  }
  if (!process_->owns_pid()) return false;
  return move_all(const_cast<std::byte*>(from.data()), to, from.size(), [&](const iovec& local, const iovec& remote) {
    return ::process_vm_writev(process_->pid(), &local, 1, &remote, 1, 0);
  });
}

}  // namespace lockstep::transport::shm
