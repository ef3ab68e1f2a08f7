// Moves bytes between two ranks. The one face of `shm/` and `tcp/`.
//
// Messages. A message is some bytes with a tag. The receiver gives a buffer of exactly the message's size; a size that
// differs throws Mismatch on the receiver. Messages with the same peer, tag and direction arrive in the order they were
// sent; others may overtake each other.
//
// No deadlock among senders. A send ends when its buffer may be used again. It may need the receiver to be inside a
// call (any call, to any peer), never a matching receive: a rank that waits takes in what others send it, in memory of
// its own. So two ranks may send to each other at once, whatever the size.
//
// Labels. A message may carry a label, and a receive says which one it expects: another one throws WrongLabel on the
// receiver, before any byte is taken for what it is not.
//
// Deadlines. A call that waits longer than its timeout throws TimedOut. When a rank dies, every call that waits throws
// PeerDied within a second; so does every later call. When a rank leaves in good order, only calls that need it throw.
// TimedOut half way through a message leaves the receive's buffer undefined, and every later call throws it too.
//
// Threads. All methods may be called from any thread at once. After fork() only the parent may use it; the child's
// calls throw UsageError. Destruction fails works that are still under way.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/base/types.h"

namespace lockstep::transport {

class Endpoint;
struct Operation;

struct Label {
  std::array<std::uint64_t, 3> words{};
  bool operator==(const Label&) const = default;
  bool empty() const { return *this == Label{}; }
};

class WrongLabel : public Mismatch {
 public:
  WrongLabel(Rank peer, const Label& got, const std::string& message) : Mismatch(message), peer_(peer), got_(got) {}
  Rank peer() const { return peer_; }
  const Label& got() const { return got_; }

 private:
  Rank peer_;
  Label got_;
};

// The handle of a send or receive under way. The buffer must live until wait() returned or the work was seen done.
class Work {
 public:
  Work() = default;
  // Blocks until it is done; throws what went wrong. A second call returns at once, or throws the same.
  void wait();
  // True when wait() would not block. Never blocks.
  bool done();

 private:
  friend class Endpoint;
  Work(Endpoint* endpoint, std::shared_ptr<Operation> operation);
  Endpoint* endpoint_ = nullptr;
  std::shared_ptr<Operation> operation_;
};

class Transport {
 public:
  virtual ~Transport() = default;

  virtual std::string name() const = 0;
  virtual Rank rank() const = 0;
  virtual int size() const = 0;

  // Without a timeout: the one that the transport was made with.
  virtual void send(Rank to, Tag tag, ConstBytes bytes, std::optional<Duration> timeout = {}) = 0;
  virtual void recv(Rank from, Tag tag, Bytes bytes, std::optional<Duration> timeout = {}) = 0;
  virtual Work send_async(Rank to, Tag tag, ConstBytes bytes, std::optional<Duration> timeout = {}) = 0;
  virtual Work recv_async(Rank from, Tag tag, Bytes bytes, std::optional<Duration> timeout = {}) = 0;

  // A send and a receive at the same time, either of which may be missing, until both are done. Has no deadline of its
  // own: it calls `on_delay` now and then while it waits, and gives up when that throws.
  struct Swap {
    std::optional<Rank> to;
    ConstBytes out;
    std::optional<Rank> from;
    Bytes in;
  };
  virtual void swap(const Swap& both, Tag tag, const Label& label, const std::function<void()>& on_delay) = 0;

  // Takes a message that has arrived whole; false when there is none. Never blocks.
  virtual bool try_recv(Rank from, Tag tag, Bytes bytes) = 0;

  // For those who wait for something else than a message: moves what can be moved, and looks after the peers. Throws
  // what ended the world, or PeerDied when one of `needed` has left. Never blocks.
  virtual void look_after(std::span<const Rank> needed) = 0;

  // Tells every peer that this rank failed, and why: their calls throw PeerDied with the text. For errors that end the
  // rank; after it the transport is fit only to be destroyed.
  virtual void abort(const std::string& why) noexcept = 0;
  // The same when another rank is to blame (they throw PeerDied of that one), or when ranks disagree about what they
  // are doing (they throw Mismatch).
  enum class Ending { failed, mismatch };
  virtual void pass_on(Rank culprit, const std::string& why, Ending ending) noexcept = 0;
  // True when this rank has told its peers of an end, or has heard of one: no other last words may cover that.
  virtual bool ended() const noexcept = 0;
};

}  // namespace lockstep::transport
