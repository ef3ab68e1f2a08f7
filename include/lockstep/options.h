// The options of worlds and communicators, and the environment variables that set them. If a program passes options,
// these variables have no effect, also for fields that the program did not set. To change one field only, begin with
// from_environment(). Which ranks there are always comes from the environment.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "lockstep/buffer.h"
#include "lockstep/named_values.h"
#include "lockstep/types.h"

namespace lockstep {

// How messages travel between ranks. `automatic` is shm if all ranks share a host, and tcp otherwise.
enum class TransportKind : std::uint8_t { automatic, shm, tcp };

inline constexpr auto kTransports = named_values<TransportKind>(
    "transport", {{TransportKind::automatic, "auto"}, {TransportKind::shm, "shm"}, {TransportKind::tcp, "tcp"}});
inline const char* name_of(TransportKind kind) { return kTransports.name_of(kind); }
// Throws UsageError if there is no transport of this name.
inline TransportKind parse_transport(std::string_view text) { return kTransports.parse(text); }

namespace transport {

// How large messages cross shared memory. `automatic` is one copy from process to process where the kernel allows it.
enum class ShmCopy : std::uint8_t { automatic, queue };

inline constexpr auto kShmCopies =
    named_values<ShmCopy>("way to copy", {{ShmCopy::automatic, "auto"}, {ShmCopy::queue, "queue"}});

// How the ranks of a world are connected.
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
  ShmCopy shm_copy = ShmCopy::automatic;
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

}  // namespace transport

namespace comm {

// How a communicator works. Options that must be the same on all ranks (algorithm, segment_bytes, small_bytes, and
// whether there is a trace) are taken from the first rank.
struct Options {
  // LOCKSTEP_ALGORITHM: the algorithm that `automatic` stands for in a call. If this is `automatic` as well,
  // Lockstep chooses: `direct` in shared memory, otherwise by operation, size and number of ranks.
  Algorithm algorithm = Algorithm::automatic;
  // LOCKSTEP_TIMEOUT: how long a collective may wait for its peers; the variable is in seconds.
  Duration timeout = std::chrono::seconds(600);
  // How long a rank waits before it logs which ranks are late.
  Duration first_warning = std::chrono::seconds(10);
  // LOCKSTEP_DUMP_DIR: the folder to which a rank writes its last collectives if one times out or if ranks disagree.
  // Empty means the folder lockstep-UID in $TMPDIR, where only the newest files are kept.
  std::string dump_dir;
  // LOCKSTEP_TRACE: the file that rank 0 writes at the end. Empty means no trace.
  std::string trace_file;
  // For `direct`: the bytes of a segment. Private buffers pass through two segments per rank. A broadcast, scatter,
  // gather, all-gather, reduce-scatter or all-to-all of up to this size needs only one synchronisation.
  std::size_t segment_bytes = std::size_t{512} << 10;
  // For `direct`: private buffers of up to this size travel in a slot beside the post. Every rank then reads the slots
  // of all ranks, and one synchronisation is enough.
  std::size_t small_bytes = std::size_t{8} << 10;

  // Tells in errors which communicator it is, for example that of a model. It has at most kLongestName bytes, and must
  // be the same on all ranks.
  static constexpr std::size_t kLongestName = 63;
  std::string name;

  static Options from_environment();
};

}  // namespace comm
}  // namespace lockstep
