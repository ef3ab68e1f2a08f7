// The communicator: collectives and messages among the ranks of a group. It is the main interface for programs.
//
//   lockstep::Communicator comm = lockstep::init();
//   comm.all_reduce(std::span(gradients), lockstep::ReduceOp::mean);
//
// Buffers. All ranks must pass the same count, type and root; if they disagree, all of them get a Mismatch. After an
// error the contents of the buffers are undefined. A buffer from allocate() lies in the arena, memory that all ranks of
// the host have mapped, and is reduced in place with the least memory traffic. Any other memory works, too.
//
// Order. The collectives of one communicator run in the order in which they were called, synchronous or
// asynchronous. A synchronous call with nothing queued before it runs on the caller's thread. Messages (send, recv) are
// ordered per (peer, tag, direction) and never wait for a collective.
//
// Bits. All ranks end with the same bits. `direct` and `ordered` sum in rank order and give the same bits as each
// other.
//
// Errors. No call blocks past its deadline (TimedOut). If a rank dies, the others get a PeerDied within a second. After
// an error other than UsageError the communicator can only be destroyed. There is one exception: after a TimedOut of
// send() or recv() of which no byte has moved, the call can be repeated. Destruction makes collectives fail that are
// still in flight.
//
// Threads. Several threads may call it. Collectives then run in the order in which the calls came in, which must be the
// same on all ranks. Two threads of a rank must not make communicators of one world at the same time, and all ranks
// make them in the same order. After fork() only the parent may use a communicator.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "lockstep/buffer.h"
#include "lockstep/error.h"
#include "lockstep/options.h"
#include "lockstep/types.h"
#include "lockstep/work.h"

namespace lockstep {

class World;
namespace trace {
class Recorder;
}

// Options of one call.
struct CallOptions {
  // automatic: that of comm::Options; if that is automatic, too, Lockstep chooses by operation, size and ranks.
  Algorithm algorithm = Algorithm::automatic;
  std::optional<Duration> timeout;  // none: the communicator's timeout
};

// The messages that this rank has sent in collectives, and their bytes. They are counted as in the plans: a large
// message counts once, although it travels in segments. `direct` sends none where it uses shared memory.
struct Traffic {
  std::uint64_t messages = 0;
  std::uint64_t bytes = 0;
};

class Communicator;

// True for types whose operations are free functions, like those of torch::Tensor in tensor.h.
template <typename T>
inline constexpr bool is_tensor = false;

// clang-format off
#define LOCKSTEP_TENSOR_OPERATIONS(X)                                                                              \
  X(all_reduce) X(reduce) X(broadcast) X(scatter) X(gather) X(all_gather) X(reduce_scatter) X(all_to_all) X(send) X(recv) \
  X(all_reduce_async) X(reduce_async) X(broadcast_async) X(scatter_async) X(gather_async) X(all_gather_async)     \
  X(reduce_scatter_async) X(all_to_all_async) X(send_async) X(recv_async)
// clang-format on

// Each of these functions calls the free function of the same name that is declared for the tensor type. They are
// outside of the class, because inside it the name would mean the member function.
#define LOCKSTEP_CALL(name)                                             \
  template <typename... Arguments>                                      \
  auto call_##name(Communicator& comm, const Arguments&... arguments) { \
    return name(comm, arguments...);                                    \
  }
namespace on_tensors {
LOCKSTEP_TENSOR_OPERATIONS(LOCKSTEP_CALL)
}
#undef LOCKSTEP_CALL

class Communicator {
 public:
  // Collective. A communicator over all ranks of a world, which must outlive it.
  explicit Communicator(World& world, const comm::Options& options = comm::Options::from_environment());
  ~Communicator();
  Communicator(Communicator&&) noexcept;
  Communicator& operator=(Communicator&&) noexcept;

  Rank rank() const;
  int size() const;
  // The number in the world of this rank, or of another rank of this group. Errors name ranks by this number.
  Rank world_rank() const { return world_rank(rank()); }
  Rank world_rank(Rank rank) const;
  Rank next_rank() const { return (rank() + 1) % size(); }
  Rank prev_rank() const { return (rank() + size() - 1) % size(); }
  int ranks_on_this_host() const;                       // how many ranks of this group, this one included
  std::optional<TransportKind> transport_kind() const;  // shm or tcp; none in a group of one rank
  std::string transport() const;                        // its name, or "none"

  // In place: the sum (mean, ...) of all ranks' buffers, on all ranks.
  void all_reduce(Buffer buffer, ReduceOp op = ReduceOp::sum, const CallOptions& options = {});
  // The sum (mean, ...) of all ranks' buffers, in place on the root. The other ranks' buffers stay as they are.
  void reduce(Buffer buffer, ReduceOp op, Rank root, const CallOptions& options = {});
  // Copies the root's buffer to all other ranks.
  void broadcast(Buffer buffer, Rank root, const CallOptions& options = {});
  // `whole` has size() times the elements of `mine`, and is used on the root only.
  void scatter(ConstBuffer whole, Buffer mine, Rank root, const CallOptions& options = {});
  void gather(ConstBuffer mine, Buffer whole, Rank root, const CallOptions& options = {});
  // `whole` is divided into size() chunks (chunk_begin, chunk_size). For rank r, `mine` is chunk r, which it
  // contributes or gets; `mine` may also lie in `whole`, at the place of this chunk.
  void all_gather(ConstBuffer mine, Buffer whole, const CallOptions& options = {});
  void reduce_scatter(ConstBuffer whole, Buffer mine, ReduceOp op = ReduceOp::sum, const CallOptions& options = {});
  // Chunk j of `input` goes to rank j, where it becomes chunk rank() of `output`. Both counts must be the same multiple
  // of size(), and the two buffers must not overlap.
  void all_to_all(ConstBuffer input, Buffer output, const CallOptions& options = {});
  void barrier(const CallOptions& options = {});

  // The same operations; they are in flight when the call returns. Buffers must live until the work is done.
  Work all_reduce_async(Buffer buffer, ReduceOp op = ReduceOp::sum, const CallOptions& options = {});
  Work reduce_async(Buffer buffer, ReduceOp op, Rank root, const CallOptions& options = {});
  Work broadcast_async(Buffer buffer, Rank root, const CallOptions& options = {});
  Work scatter_async(ConstBuffer whole, Buffer mine, Rank root, const CallOptions& options = {});
  Work gather_async(ConstBuffer mine, Buffer whole, Rank root, const CallOptions& options = {});
  Work all_gather_async(ConstBuffer mine, Buffer whole, const CallOptions& options = {});
  Work reduce_scatter_async(ConstBuffer whole, Buffer mine, ReduceOp op = ReduceOp::sum,
                            const CallOptions& options = {});
  Work all_to_all_async(ConstBuffer input, Buffer output, const CallOptions& options = {});
  Work barrier_async(const CallOptions& options = {});

  // Messages between two ranks. Tags go from 0 to 65279.
  void send(Rank to, ConstBuffer buffer, Tag tag = 0);
  void recv(Rank from, Buffer buffer, Tag tag = 0);
  Work send_async(Rank to, ConstBuffer buffer, Tag tag = 0);
  Work recv_async(Rank from, Buffer buffer, Tag tag = 0);

  // The same operations on tensors, for programs that include tensor.h: comm.all_reduce(tensor).
#define LOCKSTEP_MEMBER(name)                                                      \
  template <typename... Arguments>                                                 \
  requires(is_tensor<Arguments> || ...) auto name(const Arguments&... arguments) { \
    return on_tensors::call_##name(*this, arguments...);                           \
  }
  LOCKSTEP_TENSOR_OPERATIONS(LOCKSTEP_MEMBER)
#undef LOCKSTEP_MEMBER
#undef LOCKSTEP_TENSOR_OPERATIONS

  // Collective. Ranks with the same color form a group, ordered by key and then by rank. A rank with a negative color
  // is in no group. Errors show the name. Ranks of a group that give different names get a Mismatch, because they are
  // making different communicators: their calls are not in the same order.
  std::optional<Communicator> split(int color, int key = 0, const std::string& name = "");
  // Collective: a second communicator over the same ranks, with its own order of collectives.
  Communicator duplicate(const std::string& name = "");

  // Collective: returns `count` zeroed elements that belong to this rank. They lie in the arena, or in plain memory if
  // the ranks share none. All ranks must pass the same count. The elements live as long as the pointer, also after the
  // communicator. In addition, the communicator keeps the elements of all ranks mapped, because peers may refer to
  // them, until the first allocate() after all ranks have released their pointers, or until it is destroyed.
  template <Element T>
  std::shared_ptr<std::span<T>> allocate(std::size_t count) {
    auto bytes = allocate_bytes(count > kTooMany / sizeof(T) ? kTooMany : count * sizeof(T));
    auto* whole = new std::span<T>(reinterpret_cast<T*>(bytes->data()), count);
    return std::shared_ptr<std::span<T>>(whole, [bytes](std::span<T>* span) { delete span; });
  }
  std::shared_ptr<Bytes> allocate_bytes(std::size_t bytes);  // up to 2^40
  // Collective: one zeroed buffer that is the same memory on every rank. The ranks must arrange by themselves who
  // writes what, and when the others may read it (for example after a barrier). Throws UsageError if the ranks share no
  // memory.
  std::shared_ptr<Bytes> allocate_common(std::size_t bytes);
  bool in_arena(const void* data) const;
  // Where the same place of the same allocation lies on each rank, mapped in this process, for `bytes` bytes that
  // allocate() gave to this rank; empty if they are not in the arena. Of a communicator of one rank, only its own. The
  // ranks must arrange by themselves who reads or writes what, and when (for example after a barrier).
  std::vector<std::byte*> on_all_ranks(const void* data, std::size_t bytes) const;

  // Collectives that are called from now on belong to this step (modulo 2^24), until another one is given; 0 means no
  // step. Ranks whose steps differ get a Mismatch that names both steps, instead of wrong sums.
  void begin_step(std::uint32_t step);

  // The algorithm that `automatic` stands for.
  Algorithm choice(Op op, std::size_t count, DType dtype) const;
  Traffic traffic() const;
  // The recorder of this rank's spans; null if tracing is off (LOCKSTEP_TRACE).
  trace::Recorder* recorder() const;
  // Tells the other ranks that this one failed, and why.
  void abort(const std::string& why) noexcept;
  // Tells the launcher, in the caller's words, what this rank was waiting for when a peer died or a deadline passed.
  // The launcher's report shows it instead of the message's size and tag. May be called from any thread.
  void report_waiting(const std::string& what) noexcept;

 private:
  static constexpr std::size_t kTooMany = ~std::size_t{0};
  class Impl;
  explicit Communicator(std::unique_ptr<Impl> impl);
  friend Communicator init(const transport::Options& options, const comm::Options& comm_options);
  std::unique_ptr<Impl> impl_;
};

// A communicator over the world that the environment describes, or over a world of one rank if the environment
// describes none. If a program passes options, the variables of these options (such as LOCKSTEP_TIMEOUT) have no
// effect.
Communicator init(const transport::Options& options = transport::Options::from_environment(),
                  const comm::Options& comm_options = comm::Options::from_environment());

// The main() of a rank: makes the world and a communicator over it, and runs `body`. If that throws, it prints the
// error and tells the other ranks and the launcher. Returns the exit code. thread_world() runs `body` on ranks that are
// threads of this process (world.h).
int rank_main(const std::function<void(Communicator&)>& body) noexcept;
int rank_main(const std::function<void(Communicator&)>& body, const transport::Options& options,
              const comm::Options& comm_options) noexcept;
void thread_world(int size, const std::function<void(Communicator&)>& body, const transport::Options& options = {},
                  const comm::Options& comm_options = {});

}  // namespace lockstep
