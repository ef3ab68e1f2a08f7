// What a user can choose about a transport, and where the environment sets it.
#pragma once

#include <cstddef>
#include <functional>
#include <string>

#include "lockstep/base/clock.h"

namespace lockstep::transport {

struct Options {
  // LOCKSTEP_TRANSPORT: auto (shm when all ranks share a host, else tcp), shm or tcp.
  std::string kind = "auto";
  // LOCKSTEP_TIMEOUT: how long a call waits, in seconds.
  Duration timeout = std::chrono::seconds(600);

  // LOCKSTEP_TCP_ADDRESS: where tcp listens: 127.0.0.1:0, [::1]:0, an address of this host, or `unix` for sockets that
  // never leave the kernel's Unix layer. Empty: loopback on one host, else the address that reaches the store.
  std::string tcp_address;
  // tcp: a message travels in segments of at most this many bytes, so that a long one does not hold up the others.
  std::size_t segment_bytes = std::size_t{1} << 20;
  // tcp: SO_SNDBUF and SO_RCVBUF; 0 leaves them to the kernel.
  int socket_buffer_bytes = 0;

  // LOCKSTEP_SHM_COPY: auto (messages from `single_copy_from` on are copied once, from process to process, where the
  // kernel allows it) or queue (always through the queue, copied twice).
  std::string shm_copy = "auto";
  std::size_t single_copy_from = std::size_t{64} << 10;
  // shm: bytes of one queue; 0 chooses by the number of ranks. A power of two from 4 KiB on.
  std::size_t queue_bytes = 0;
  // LOCKSTEP_SHM_DIR: a directory on a tmpfs for the regions. Empty: memfd, which needs none.
  std::string shm_dir;

  // shm, for tests: called between claiming a piece of a single copy and copying it.
  std::function<void()> before_copy;

  static Options from_environment();
};

}  // namespace lockstep::transport
