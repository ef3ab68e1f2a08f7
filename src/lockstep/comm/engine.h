// What moves the data of one communicator. Communicator checks the arguments of calls, puts collectives in order and
// records spans; an engine runs them. NativeEngine is the engine of Lockstep's own transports.
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

  // The ranks of the group, and their numbers in the world.
  virtual Rank rank() const = 0;
  virtual const std::vector<Rank>& world_ranks() const = 0;
  int size() const { return static_cast<int>(world_ranks().size()); }
  Rank world_rank(Rank rank) const { return world_ranks().at(index_of(rank)); }
  Rank world_rank() const { return world_rank(rank()); }

  virtual std::optional<TransportKind> transport_kind() const = 0;  // none in a group of one
  virtual const Options& options() const = 0;                       // those that all ranks have agreed on
  virtual std::string who() const = 0;                              // "communicator 3"

  // An engine over some ranks of the world, in this order. Collective over these ranks. `context` tells the messages of
  // the new communicator from those of others.
  virtual std::unique_ptr<Engine> make_another(std::vector<Rank> world_ranks, std::uint16_t context,
                                               const Options& options) = 0;

  virtual void run(collectives::Call call, std::optional<Duration> timeout) = 0;
  virtual Algorithm choice(Op op, std::size_t bytes) const = 0;
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
  // Says goodbye to the other ranks, and compares the last collective with theirs: if it was one in which ranks only
  // send, they have not heard from each other. A difference is noted in the world (World::note_lost), because nothing
  // may be thrown here.
  virtual void leave() noexcept = 0;
};

}  // namespace lockstep::comm
