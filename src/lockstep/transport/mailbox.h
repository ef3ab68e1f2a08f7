// What one peer sends us: receives that were posted for it, and messages that came before their receive.
//
// A message arrives as one or more pieces. The first piece of a message is matched to the oldest posted receive with
// its tag; without one, the message is kept in memory of ours until a receive claims it. A claimed message that is not
// complete continues straight into the receive's buffer.
//
// Not thread-safe: the endpoint's mutex guards it.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <vector>

#include "lockstep/base/types.h"
#include "lockstep/transport/operation.h"

namespace lockstep::transport {

// Where a message lies in its sender's memory, for transports that can copy it from there (see shm/peer_memory.h).
struct Offer {
  std::uint64_t address;
  std::uint16_t slot;
};

// A message on its way in.
struct Incoming {
  Tag tag;
  std::size_t total;
  std::size_t arrived = 0;
  Operation* receive = nullptr;      // who gets it, once matched
  std::unique_ptr<std::byte[]> own;  // where it is kept until then
  bool discard = false;              // its receive failed or gave up: let the bytes go by
  std::optional<Offer> offer;        // still in the sender's memory
  bool pulling = false;              // being copied from there now: `own`, if any, must stay

  bool complete() const { return !offer && arrived == total; }
  // Where the next byte goes; null when it is discarded.
  std::byte* destination() const;
};

class Mailbox {
 public:
  // The message that the next piece with this tag belongs to; a new one when the last is complete.
  Incoming& message_for(Tag tag, std::size_t total);
  // A message that stays in its sender's memory until it is pulled.
  Incoming& offered(Tag tag, std::size_t total, Offer offer);
  // `bytes` more have been written to message.destination(). The reference is dead afterwards if it became complete.
  void advance(Incoming& message, std::size_t bytes);
  void drop(Incoming& message);

  // A new receive: completes it, attaches it to a message that has begun to arrive, or posts it. Returns a message that
  // waits to be pulled for it, if any.
  Incoming* receive(Operation& operation);
  // Forgets a receive that gives up. Later bytes of its message are discarded.
  void forget(Operation& operation);
  // Fails every receive.
  void fail_all(const std::exception_ptr& error);

  bool has_arrivals() const { return !arrivals_.empty(); }
  bool has_posted() const { return !posted_.empty(); }
  std::list<Incoming>& arrivals() { return arrivals_; }
  // The oldest posted receive with this tag and no message yet; removed from the posted ones.
  Operation* take_posted(Tag tag);

  std::uint64_t received() const { return received_; }  // messages that reached their receive
  void count_received() { ++received_; }

 private:
  void match(Incoming& message);
  void attach(Incoming& message, Operation& operation);
  void erase(Incoming& message);

  std::vector<Operation*> posted_;  // in the order they were posted
  std::list<Incoming> arrivals_;    // in the order they began to arrive
  std::uint64_t received_ = 0;
};

void complete(Operation& operation);
void fail(Operation& operation, std::exception_ptr error);
// Throws Mismatch into the operation.
void fail_size(Operation& operation, std::size_t message_bytes);

}  // namespace lockstep::transport
