// The options of a transport, and the environment variables that set them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "lockstep/base/clock.h"

namespace lockstep {

// How messages travel between ranks. `automatic` is shm if all ranks share a host, and tcp otherwise.
enum class TransportKind : std::uint8_t { automatic, shm, tcp };

const char* name_of(TransportKind kind);  // "auto" for automatic
// Throws UsageError if there is no transport of this name.
TransportKind parse_transport(std::string_view text);

}  // namespace lockstep

namespace lockstep::transport {

struct Options {
  // LOCKSTEP_TRANSPORT: auto, shm or tcp.
  TransportKind kind = TransportKind::automatic;
  // LOCKSTEP_TIMEOUT: how long a call waits, in seconds.
  Duration timeout = std::chrono::seconds(600);

  // LOCKSTEP_TCP_ADDRESS: the address on which tcp listens, such as 127.0.0.1:0, [::1]:0 or another address of this
  // host, or `unix` for Unix sockets. If it is empty, tcp listens on loopback if all ranks are on one host, and
  // otherwise on the address that leads to the store.
  std::string tcp_address;
  // For tcp: a message travels in segments of at most this many bytes, so that a long message does not delay the
  // others.
  std::size_t segment_bytes = std::size_t{1} << 20;
  // For tcp: SO_SNDBUF and SO_RCVBUF; 0 leaves them to the kernel.
  int socket_buffer_bytes = 0;

  // LOCKSTEP_SHM_COPY: auto (messages of at least `single_copy_from` bytes are copied once, from process to process, if
  // the kernel allows it) or queue (all messages go through the queue and are copied twice).
  std::string shm_copy = "auto";
  std::size_t single_copy_from = std::size_t{64} << 10;
  // For shm: the size of one queue in bytes, a power of two of at least 4 KiB; 0 chooses by the number of ranks.
  std::size_t queue_bytes = 0;
  // LOCKSTEP_SHM_DIR: a directory on a tmpfs for the regions. If it is empty, memfd is used, which needs no directory.
  std::string shm_dir;

  // For shm, for tests: called after a piece of a single copy was claimed and before it is copied.
  std::function<void()> before_copy;

  // What the environment says, and the defaults for the rest. A program changes what it wants otherwise.
  static Options from_environment();
};

}  // namespace lockstep::transport
