// Moves bytes between two ranks. This is the common interface of `shm/` and `tcp/`.
//
// Messages. A message is some bytes with a tag, of which errors show the lower 16 bits. The receiver gives a buffer of
// exactly the message's size; another size throws Mismatch on the receiver. Messages with the same peer, tag and
// direction arrive in the order in which they were sent; others may overtake each other.
//
// No deadlock among senders. A send ends when its buffer may be used again. For that, the receiver may have to be
// inside a call (any call, to any peer), but it never needs a matching receive: a rank that waits takes in what others
// send it, in memory of its own. So two ranks may send to each other at the same time, whatever the size.
//
// Labels. A message may carry a label, and a receive says which label it expects. Another label throws WrongLabel on
// the receiver, before any byte is written to its buffer.
//
// Deadlines. A call that waits longer than its timeout throws TimedOut. When a rank dies, every call that waits throws
// PeerDied within a second, and so does every later call. When a rank leaves in good order, only calls that need it
// throw. If TimedOut is thrown half way through a message, the contents of the receive's buffer are undefined, and
// every later call throws TimedOut, too.
//
// Threads. All methods may be called from several threads at once. After fork() only the parent may use the transport;
// calls in the child throw UsageError. The destructor fails works that are still under way.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "lockstep/error.h"
#include "lockstep/options.h"
#include "lockstep/types.h"

namespace lockstep::transport {

class Endpoint;
struct Operation;

// What a message is for, such as the fingerprint of a collective. An empty label is no label.
struct Label {
  std::array<std::uint64_t, 3> words{};
  bool operator==(const Label&) const = default;
  bool empty() const { return *this == Label{}; }
};

// A message has another label than its receive expects.
class WrongLabel : public Mismatch {
 public:
  WrongLabel(const Label& got, ErrorFacts facts) : Mismatch(std::move(facts)), got_(got) {}
  Rank peer() const { return facts().peer; }
  const Label& got() const { return got_; }
  std::exception_ptr with_facts(ErrorFacts facts) const override { return copy_with(*this, std::move(facts)); }

 private:
  Label got_;
};

// The handle of a send or receive that is under way. The buffer must live until wait() has returned or thrown, or
// done() was true.
class PendingMessage {
 public:
  PendingMessage() = default;
  // Blocks until the operation is done. Throws its error if it failed. A second call returns at once, or throws the
  // same error.
  void wait();
  // True if wait() would not block. Never blocks.
  bool done();

 private:
  friend class Endpoint;
  PendingMessage(Endpoint* endpoint, std::shared_ptr<Operation> operation);
  Endpoint* endpoint_ = nullptr;
  std::shared_ptr<Operation> operation_;
};

class Transport {
 public:
  virtual ~Transport() = default;

  virtual TransportKind kind() const = 0;  // shm or tcp
  std::string name() const { return name_of(kind()); }
  virtual Rank rank() const = 0;
  virtual int size() const = 0;

  // If no timeout is given, the timeout of the transport's options applies.
  virtual void send(Rank to, Tag tag, ConstBytes bytes, std::optional<Duration> timeout = {}) = 0;
  virtual void recv(Rank from, Tag tag, Bytes bytes, std::optional<Duration> timeout = {}) = 0;
  virtual PendingMessage send_async(Rank to, Tag tag, ConstBytes bytes, std::optional<Duration> timeout = {}) = 0;
  virtual PendingMessage recv_async(Rank from, Tag tag, Bytes bytes, std::optional<Duration> timeout = {}) = 0;

  // Sends and receives at the same time, until both are done. Either of them may be missing. It has no deadline of its
  // own: it calls `on_delay` now and then while it waits, and gives up if that throws.
  struct Swap {
    std::optional<Rank> to;
    ConstBytes out;
    std::optional<Rank> from;
    Bytes in;
  };
  virtual void swap(const Swap& both, Tag tag, const Label& label, const std::function<void()>& on_delay) = 0;

  // Receives a message that has arrived completely. Returns false if there is none of this tag and size. Never blocks.
  virtual bool try_recv(Rank from, Tag tag, Bytes bytes) = 0;

  // For callers that wait for something other than a message: moves what can be moved, and checks that the peers are
  // alive. Throws the error that ended the world, or PeerDied if one of `needed` has left. Never blocks.
  virtual void look_after(std::span<const Rank> needed) = 0;

  // Tells every peer that this rank failed, and why: their calls throw PeerDied with the text. It is for errors that
  // end the rank. After it, the transport can only be destroyed.
  virtual void abort(const std::string& why) noexcept = 0;
  // The same if another rank is to blame (the peers throw PeerDied with that rank), or if ranks disagree about what
  // they are doing (the peers throw Mismatch).
  enum class Ending { failed, mismatch };
  virtual void pass_on(Rank culprit, const std::string& why, Ending ending) noexcept = 0;
  // True if this rank has told its peers of a failure, or has heard of one. No later error may then replace that cause.
  virtual bool ended() const noexcept = 0;
};

}  // namespace lockstep::transport
