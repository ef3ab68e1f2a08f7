// Matches the messages of one peer to receives. It holds the receives that were posted for that peer, and the messages
// that came before their receive.
//
// A message arrives in one or more pieces. Its first piece is matched to the oldest posted receive with its tag. If
// there is none, the message is kept in memory of our own until a receive claims it. If it is not complete by then, the
// rest goes straight into the receive's buffer.
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

#include "lockstep/transport/operation.h"
#include "lockstep/types.h"

namespace lockstep::transport {

// Where a message lies in its sender's memory, for transports that can copy it from there (see shm/transfer.cpp).
struct Offer {
  std::uint64_t address;
  std::uint16_t slot;
};

// A message that is arriving, or that has arrived before its receive.
struct Incoming {
  Tag tag;
  std::size_t total;
  Label label;
  std::size_t arrived = 0;
  Operation* receive = nullptr;      // the receive that gets the message, once it is matched
  std::unique_ptr<std::byte[]> own;  // memory of our own that holds the message until it is matched
  bool discard = false;              // its receive failed or gave up, so its bytes are dropped
  std::optional<Offer> offer;        // where it lies, if it is still in the sender's memory
  bool pulling = false;              // being copied from the sender's memory now, so `own`, if any, must stay

  bool complete() const { return !offer && arrived == total; }
  // Where the next byte goes, or null if the message is discarded.
  std::byte* destination() const;
  // Allocates `own`. If there is no memory, the message is discarded, and an Error with the bytes needed is thrown.
  void keep(Rank sender);
};

class Mailbox {
 public:
  explicit Mailbox(Rank peer) : peer_(peer) {}

  // The message that the next piece with this tag belongs to. It is a new one if the last is complete. Throws as keep()
  // does.
  Incoming& message_for(Tag tag, std::size_t total, const Label& label);
  // Adds a message that stays in its sender's memory until it is pulled.
  Incoming& offered(Tag tag, std::size_t total, const Label& label, Offer offer);
  // Called when `bytes` more have been written to message.destination(). The reference may be invalid afterwards if the
  // message became complete.
  void advance(Incoming& message, std::size_t bytes);
  void drop(Incoming& message);

  // Takes a new receive: completes it, attaches it to a message that has begun to arrive, or posts it. Returns the
  // message that must be pulled for it, or null.
  Incoming* receive(Operation& operation);
  // Forgets a receive that gives up. True if it had a message; the later bytes of that message are discarded.
  bool forget(Operation& operation);
  // Fails every receive with the error that `error_for` returns for it.
  void fail_all(const std::function<std::exception_ptr(const Operation&)>& error_for);

  bool has_arrivals() const { return !arrivals_.empty(); }
  // True if the oldest message with this tag that no receive has asked for is complete and has this size.
  bool has_whole(Tag tag, std::size_t bytes) const;
  // The messages that wait in their sender's memory and that no receive has asked for.
  std::vector<Incoming*> unclaimed_offers();
  // Removes and returns the oldest posted receive with this tag, or null if there is none.
  Operation* take_posted(Tag tag);

  std::uint64_t received() const { return received_; }  // number of messages that reached their receive
  void count_received() { ++received_; }

 private:
  Incoming& begin(Tag tag, std::size_t total, const Label& label, const std::optional<Offer>& offer);
  void attach(Incoming& message, Operation& operation);

  Rank peer_;
  std::vector<Operation*> posted_;               // receives without a message, in the order in which they were posted
  std::map<Tag, std::list<Incoming>> arrivals_;  // messages by tag, in the order in which they began; no list is empty
  std::uint64_t received_ = 0;
};

void complete(Operation& operation);
void fail(Operation& operation, std::exception_ptr error);
// Whether a message has the label and the size that the receive expects. If not, the receive fails with WrongLabel or
// Mismatch.
bool accepts(Operation& operation, const Label& label, std::size_t message_bytes);

}  // namespace lockstep::transport
