// What one peer sends us: receives that were posted for it, and messages that came before their receive.
//
// A message arrives as one or more pieces. The first piece of a message is matched to the oldest posted receive with
// its tag; without one, the message is kept in memory of ours until a receive claims it. A claimed message that is not
// complete continues straight into the receive's buffer.
//
// Not thread-safe: the endpoint's mutex guards it.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "lockstep/base/types.h"
#include "lockstep/transport/operation.h"

namespace lockstep::transport {

// Where a message lies in its sender's memory, for transports that can copy it from there (see shm/transfer.cpp).
struct Offer {
  std::uint64_t address;
  std::uint16_t slot;
};

// A message on its way in.
struct Incoming {
  Tag tag;
  std::size_t total;
  Label label;
  std::size_t arrived = 0;
  Operation* receive = nullptr;      // who gets it, once matched
  std::unique_ptr<std::byte[]> own;  // where it is kept until then
  bool discard = false;              // its receive failed or gave up: let the bytes go by
  std::optional<Offer> offer;        // still in the sender's memory
  bool pulling = false;              // being copied from there now: `own`, if any, must stay

  bool complete() const { return !offer && arrived == total; }
  // Where the next byte goes; null when it is discarded.
  std::byte* destination() const;
  // Makes `own`. Throws Error with the bytes needed; the message is discarded then.
  void keep(Rank sender);
};

class Mailbox {
 public:
  explicit Mailbox(Rank peer) : peer_(peer) {}

  // The message that the next piece with this tag belongs to; a new one when the last is complete.
  Incoming& message_for(Tag tag, std::size_t total, const Label& label);
  // A message that stays in its sender's memory until it is pulled.
  Incoming& offered(Tag tag, std::size_t total, const Label& label, Offer offer);
  // `bytes` more have been written to message.destination(). The reference is dead afterwards if it became complete.
  void advance(Incoming& message, std::size_t bytes);
  void drop(Incoming& message);

  // A new receive: completes it, attaches it to a message that has begun to arrive, or posts it. Returns a message that
  // waits to be pulled for it, if any.
  Incoming* receive(Operation& operation);
  // Forgets a receive that gives up; true when it had a message, later bytes of which are discarded.
  bool forget(Operation& operation);
  // Fails every receive with what `error_for` makes of it.
  void fail_all(const std::function<std::exception_ptr(const Operation&)>& error_for);

  bool has_arrivals() const { return !arrivals_.empty(); }
  // A whole message with this tag and size is there, and nobody has asked for it.
  bool has_whole(Tag tag, std::size_t bytes) const;
  // Messages that wait in their sender's memory and that nobody has asked for.
  std::vector<Incoming*> unclaimed_offers();
  // The oldest posted receive with this tag and no message yet; removed from the posted ones.
  Operation* take_posted(Tag tag);

  std::uint64_t received() const { return received_; }  // messages that reached their receive
  void count_received() { ++received_; }

 private:
  Incoming& begin(Tag tag, std::size_t total, const Label& label, const std::optional<Offer>& offer);
  void attach(Incoming& message, Operation& operation);

  Rank peer_;
  std::vector<Operation*> posted_;               // in the order they were posted
  std::map<Tag, std::list<Incoming>> arrivals_;  // by tag in the order they began to arrive; no list is empty
  std::uint64_t received_ = 0;
};

void complete(Operation& operation);
void fail(Operation& operation, std::exception_ptr error);
// Whether a message is what the receive expects; fails the receive with WrongLabel or Mismatch otherwise.
bool accepts(Operation& operation, const Label& label, std::size_t message_bytes);

}  // namespace lockstep::transport
