// The one face that programs see: collectives and messages among the ranks of a group.
//
//   lockstep::Communicator comm = lockstep::init();
//   comm.all_reduce(std::span(gradients), lockstep::ReduceOp::mean);
//
// Buffers. Every rank passes the same count, type and root; ranks that disagree all get a Mismatch. After an error the
// contents of the buffers are undefined. A buffer from allocate() lies in the arena, memory that all ranks of the host
// have mapped, and is reduced in place with the least traffic; any other memory works too.
//
// Order. Collectives of one communicator run in the order in which they were called, sync or async. A sync call with
// nothing queued before it runs on the caller's thread. Messages (send, recv) are ordered per (peer, tag, direction)
// and never wait for a collective.
//
// Bits. All ranks end with the same bits. `direct` and `ordered` sum in rank order and give the same bits as each
// other.
//
// Errors. No call blocks past its deadline (TimedOut). A rank that died is PeerDied on the others within a second.
// After an error the communicator is fit only to be destroyed. A collective work that is still under way then fails.
//
// Threads. Calls may come from several threads; collectives then run in the order they got in, which must be the same
// on all ranks. Communicators of a world are made one at a time. After fork()
// only the parent may use it.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "lockstep/base/clock.h"
#include "lockstep/collectives/types.h"
#include "lockstep/comm/options.h"
#include "lockstep/comm/work.h"
#include "lockstep/transport/world.h"

namespace lockstep {

namespace trace {
class Recorder;
}

// What may differ from call to call.
struct CallOptions {
  Algorithm algorithm = Algorithm::automatic;  // automatic: LOCKSTEP_ALGORITHM, else the table in choose.cpp
  std::optional<Duration> timeout;             // none: the communicator's
};

// Messages of this rank in collectives, as their plans count them (a large one travels in segments), and their bytes.
// `direct` sends none: it shares memory.
struct Traffic {
  std::uint64_t messages = 0;
  std::uint64_t bytes = 0;
};

class Communicator;

// True for types whose operations are functions of their own, as those of torch::Tensor are in comm/tensor.h.
template <typename T>
inline constexpr bool is_tensor = false;

// clang-format off
#define LOCKSTEP_TENSOR_OPERATIONS(X)                                                                              \
  X(all_reduce) X(reduce) X(broadcast) X(scatter) X(gather) X(all_gather) X(reduce_scatter) X(all_to_all) X(send) X(recv) \
  X(all_reduce_async) X(reduce_async) X(broadcast_async) X(scatter_async) X(gather_async) X(all_gather_async)     \
  X(reduce_scatter_async) X(all_to_all_async) X(send_async) X(recv_async)
// clang-format on

// Each of these calls the function of the same name that stands beside the tensor type. Outside of the class, where the
// name means that function and not the member.
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
  // Over all ranks of a world, which must outlive it. Collective.
  explicit Communicator(World& world, const comm::Options& options = comm::Options::from_environment());
  ~Communicator();
  Communicator(Communicator&&) noexcept;
  Communicator& operator=(Communicator&&) noexcept;

  Rank rank() const;
  int size() const;
  // The number in the world of this rank, or of another in this group: what errors name.
  Rank world_rank() const { return world_rank(rank()); }
  Rank world_rank(Rank rank) const;
  Rank next_rank() const { return (rank() + 1) % size(); }
  Rank prev_rank() const { return (rank() + size() - 1) % size(); }
  std::string transport() const;  // "shm", "tcp", or "none" in a world of one

  // In place: the sum (mean, ...) of all ranks' buffers, on all ranks.
  void all_reduce(Buffer buffer, ReduceOp op = ReduceOp::sum, const CallOptions& options = {});
  // In place on the root; the other ranks' buffers stay as they are.
  void reduce(Buffer buffer, ReduceOp op, Rank root, const CallOptions& options = {});
  void broadcast(Buffer buffer, Rank root, const CallOptions& options = {});
  // `whole` has size() times the elements of `mine`, and counts on the root only.
  void scatter(ConstBuffer whole, Buffer mine, Rank root, const CallOptions& options = {});
  void gather(ConstBuffer mine, Buffer whole, Rank root, const CallOptions& options = {});
  // `whole` is cut in size() chunks (chunk_begin, chunk_size); rank r gives, or gets, chunk r. `mine` may lie there.
  void all_gather(ConstBuffer mine, Buffer whole, const CallOptions& options = {});
  void reduce_scatter(ConstBuffer whole, Buffer mine, ReduceOp op = ReduceOp::sum, const CallOptions& options = {});
  // Chunk j of `input` goes to rank j, which puts it at our place in its `output`. size() divides both counts; the two
  // must not overlap.
  void all_to_all(ConstBuffer input, Buffer output, const CallOptions& options = {});
  void barrier(const CallOptions& options = {});

  // The same, under way when they return. Buffers must stay until the work is done.
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

  // All of these on tensors, for programs that include comm/tensor.h: comm.all_reduce(tensor).
#define LOCKSTEP_MEMBER(name)                                                      \
  template <typename... Arguments>                                                 \
  requires(is_tensor<Arguments> || ...) auto name(const Arguments&... arguments) { \
    return on_tensors::call_##name(*this, arguments...);                           \
  }
  LOCKSTEP_TENSOR_OPERATIONS(LOCKSTEP_MEMBER)
#undef LOCKSTEP_MEMBER
#undef LOCKSTEP_TENSOR_OPERATIONS

  // Collective. Ranks with the same color form a group, ordered by key, then by rank. A negative color: no group.
  // Errors show the name. Ranks of a group that give different names get a Mismatch: they mean different communicators,
  // made in another order.
  std::optional<Communicator> split(int color, int key = 0, const std::string& name = "");
  // Collective: a second communicator over the same ranks, with an order of its own.
  Communicator duplicate(const std::string& name = "");

  // Collective: `count` elements, zeroed, at the same offset of the arena on every rank. Where ranks share no memory it
  // is plain memory. Freed with the next allocate() after all ranks have let go, or with the communicator.
  template <Element T>
  std::shared_ptr<std::span<T>> allocate(std::size_t count) {
    auto bytes = allocate_bytes(count > kTooMany / sizeof(T) ? kTooMany : count * sizeof(T));
    auto* whole = new std::span<T>(reinterpret_cast<T*>(bytes->data()), count);
    return std::shared_ptr<std::span<T>>(whole, [bytes](std::span<T>* span) { delete span; });
  }
  std::shared_ptr<Bytes> allocate_bytes(std::size_t bytes);  // up to 2^40
  // Collective: one zeroed buffer that is the same memory on every rank. Who writes what, and when the others may read
  // it (after a barrier, say), is up to the ranks. A UsageError where they share no memory.
  std::shared_ptr<Bytes> allocate_common(std::size_t bytes);
  bool in_arena(const void* data) const;

  // Collectives that are called from now on belong to this step (counted modulo 2^24), until another is given; 0: to no
  // step. Ranks whose steps differ get a Mismatch that names both, and no wrong sums.
  void begin_step(std::uint32_t step);

  // Which algorithm `automatic` takes.
  Algorithm choice(Op op, std::size_t count, DType dtype) const;
  Traffic traffic() const;
  // Where this rank's spans go; null when tracing is off (LOCKSTEP_TRACE).
  trace::Recorder* recorder() const;
  // Tells the other ranks that this one failed, and why.
  void abort(const std::string& why) noexcept;
  // What this rank was waiting for when a peer died or a deadline passed, in the words of the caller: the launcher's
  // report shows it in place of the message's size and tag. From any thread.
  void report_waiting(const std::string& what) noexcept;

 private:
  static constexpr std::size_t kTooMany = ~std::size_t{0};
  class Impl;
  explicit Communicator(std::unique_ptr<Impl> impl);
  friend Communicator init();
  std::unique_ptr<Impl> impl_;
};

// The world that the environment tells of; a world of one when it tells nothing.
Communicator init();

// As in world.h, for programs that want a communicator.
int rank_main(const std::function<void(Communicator&)>& body) noexcept;
void thread_world(int size, const std::function<void(Communicator&)>& body, const transport::Options& options = {},
                  const comm::Options& comm_options = {});

}  // namespace lockstep
