// An engine moves the data of one communicator: it runs collectives and sends messages. Communicator checks the
// arguments of calls and puts collectives in order before it calls the engine. NativeEngine is the engine that uses
// Lockstep's own transports.
//
// Not thread-safe: collectives must take turns (serial_executor.h). Messages may be sent from any thread.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/collectives/call.h"
#include "lockstep/communicator.h"
#include "lockstep/options.h"
#include "lockstep/work.h"

namespace lockstep::comm {

// Tags of messages. Those above the last one of the user are for Lockstep itself.
constexpr Tag kLastUserTag = 0xfeff;
constexpr Tag kTraceTag = 0xfffc;

class Engine {
 public:
  virtual ~Engine() = default;

  // This rank's number in the group, and the world's numbers of all ranks of the group.
  virtual Rank rank() const = 0;
  virtual const std::vector<Rank>& world_ranks() const = 0;
  int size() const { return static_cast<int>(world_ranks().size()); }
  Rank world_rank(Rank rank) const { return world_ranks().at(index_of(rank)); }
  Rank world_rank() const { return world_rank(rank()); }

  virtual std::optional<TransportKind> transport_kind() const = 0;  // none in a group of one
  virtual int ranks_on_this_host() const = 0;                       // of the group, this one included
  virtual const Options& options() const = 0;  // this rank's, with rank 0's values where all must have the same
  virtual std::string who() const = 0;         // "communicator 3"

  // An engine over some ranks of the world, in this order. Collective over these ranks. `context` tells the messages of
  // the new communicator from those of others.
  virtual std::unique_ptr<Engine> make_another(std::vector<Rank> world_ranks, std::uint16_t context,
                                               const Options& options) = 0;

  // Runs a collective and returns when it is done on this rank. Throws Mismatch, TimedOut or PeerDied; after these the
  // engine can only be destroyed. After a UsageError nothing was sent.
  virtual void run(collectives::Call call, std::optional<Duration> timeout) = 0;
  // The algorithm that `automatic` stands for, for a buffer of this size.
  virtual Algorithm choice(Op op, std::size_t bytes) const = 0;
  // What this rank has sent in collectives so far.
  virtual Traffic traffic() const = 0;

  // Messages to and from another rank of the group.
  virtual void send(Rank to, ConstBytes bytes, Tag tag, std::optional<Duration> timeout) = 0;
  virtual void recv(Rank from, Bytes bytes, Tag tag, std::optional<Duration> timeout) = 0;
  virtual Work send_async(Rank to, ConstBytes bytes, Tag tag) = 0;
  virtual Work recv_async(Rank from, Bytes bytes, Tag tag) = 0;

  // See Communicator. Collective.
  virtual std::shared_ptr<Bytes> allocate(std::size_t bytes) = 0;
  virtual std::shared_ptr<Bytes> allocate_common(std::size_t bytes) = 0;
  virtual bool in_arena(const void* data) const = 0;
  virtual std::vector<std::byte*> on_all_ranks(const void* data, std::size_t bytes) const = 0;

  // Sets the recorder for spans; null means that none are recorded.
  virtual void trace_to(trace::Recorder* recorder) = 0;
  virtual trace::Recorder* recorder() const = 0;

  // Ends the communicator on all ranks with a Mismatch. Used if the result of a collective, which itself went well,
  // shows that the ranks disagree.
  [[noreturn]] virtual void refuse(const std::string& why, const std::string& hint) = 0;
  // True after an error that ended the communicator.
  virtual bool failed() const = 0;
  // Makes the running collective give up. May be called from any thread.
  virtual void interrupt() = 0;
  // Says goodbye to the other ranks, and compares the last collective with theirs. This finds a difference that no
  // message has shown, such as two roots that both only sent. A difference is noted in the world (World::note_lost),
  // because nothing may be thrown here.
  virtual void leave() noexcept = 0;
};

}  // namespace lockstep::comm
