#include "lockstep/transport/mailbox.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "lockstep/error.h"

namespace lockstep::transport {

namespace {

std::string without_tag(const Operation& operation) {
  const bool sends = operation.kind == Operation::Kind::send;
  return fmt::format("{} of {} {} rank {}", sends ? "send" : "recv", describe_bytes(operation.bytes),
                     sends ? "to" : "from", operation.peer);
}

// The tag that the program gave to a communicator. The upper half is the communicator's number, which the program has
// not chosen.
Tag tag_of_program(Tag tag) { return tag & 0xffff; }

}  // namespace

std::string Operation::describe() const { return fmt::format("{}, tag {}", without_tag(*this), tag_of_program(tag)); }

ErrorFacts Operation::facts(Rank me, const std::string& message) const {
  return {.rank = me, .operation = without_tag(*this), .tag = tag_of_program(tag), .message = message, .peer = peer};
}

void complete(Operation& operation) { operation.state.store(Operation::State::done, std::memory_order_release); }

void fail(Operation& operation, std::exception_ptr error) {
  if (!operation.pending()) return;
  operation.error = std::move(error);
  operation.state.store(Operation::State::failed, std::memory_order_release);
}

bool accepts(Operation& operation, const Label& label, std::size_t message_bytes) {
  if (label != operation.label) {
    const std::string what = fmt::format("rank {} sent a message with another label", operation.peer);
    fail(operation, std::make_exception_ptr(WrongLabel(label, operation.facts(kNoRank, what))));
    return false;
  }
  if (message_bytes == operation.bytes) return true;
  ErrorFacts facts =
      operation.facts(kNoRank, fmt::format("rank {} sent {}", operation.peer, describe_bytes(message_bytes)));
  facts.hint = "the same size on both sides, or tags that tell the messages apart";
  fail(operation, std::make_exception_ptr(Mismatch(std::move(facts))));
  return false;
}

std::byte* Incoming::destination() const {
  if (discard) return nullptr;
  return (own ? own.get() : receive->data) + arrived;
}

Operation* Mailbox::take_posted(Tag tag) {
  const auto found = std::find_if(posted_.begin(), posted_.end(), [&](const Operation* op) { return op->tag == tag; });
  if (found == posted_.end()) return nullptr;
  Operation* operation = *found;
  posted_.erase(found);
  return operation;
}

void Incoming::keep(Rank sender) {
  own.reset(new (std::nothrow) std::byte[std::max<std::size_t>(total, 1)]);
  if (own) return;
  discard = true;
  throw Error(fmt::format("no memory for a message of {} from rank {}, tag {}, that nobody has asked for yet",
                          describe_bytes(total), sender, tag_of_program(tag)),
              "post its receive before it is sent, or send less at once");
}

Incoming& Mailbox::message_for(Tag tag, std::size_t total, const Label& label) {
  // Pieces of one tag come in order, so only the last message with this tag can be incomplete.
  if (const auto found = arrivals_.find(tag); found != arrivals_.end())
    if (Incoming& last = found->second.back(); !last.offer && !last.complete()) return last;
  Incoming& message = begin(tag, total, label, std::nullopt);
  if (message.receive == nullptr && !message.discard) message.keep(peer_);
  return message;
}

Incoming& Mailbox::offered(Tag tag, std::size_t total, const Label& label, Offer offer) {
  return begin(tag, total, label, offer);
}

Incoming& Mailbox::begin(Tag tag, std::size_t total, const Label& label, const std::optional<Offer>& offer) {
  Incoming& message =
      arrivals_[tag].emplace_back(Incoming{tag, total, label, 0, nullptr, nullptr, false, offer, false});
  if (Operation* operation = take_posted(tag)) attach(message, *operation);
  return message;
}

void Mailbox::attach(Incoming& message, Operation& operation) {
  if (!accepts(operation, message.label, message.total)) {
    message.discard = true;
    if (!message.pulling) message.own.reset();
    return;
  }
  message.receive = &operation;
  if (message.pulling) return;  // it is being copied to `own` at this moment; advance() will copy it from there
  if (message.arrived > 0) std::memcpy(operation.data, message.own.get(), message.arrived);
  message.own.reset();
}

void Mailbox::advance(Incoming& message, std::size_t bytes) {
  message.arrived += bytes;
  if (!message.complete()) return;
  if (message.receive != nullptr) {
    if (message.own) std::memcpy(message.receive->data, message.own.get(), message.total);
    ++received_;
    complete(*message.receive);
    drop(message);
  } else if (message.discard) {
    drop(message);
  }
}

void Mailbox::drop(Incoming& message) {
  const auto found = arrivals_.find(message.tag);
  auto& list = found->second;  // the message is nearly always the first in the list
  list.erase(std::find_if(list.begin(), list.end(), [&](const Incoming& other) { return &other == &message; }));
  if (list.empty()) arrivals_.erase(found);
}

Incoming* Mailbox::receive(Operation& operation) {
  if (const auto found = arrivals_.find(operation.tag); found != arrivals_.end())
    for (Incoming& message : found->second) {
      if (message.receive != nullptr || message.discard) continue;
      attach(message, operation);
      if (message.pulling) return nullptr;
      if (message.offer) return &message;
      advance(message, 0);  // it may be complete already
      return nullptr;
    }
  posted_.push_back(&operation);
  return nullptr;
}

bool Mailbox::has_whole(Tag tag, std::size_t bytes) const {
  const auto found = arrivals_.find(tag);
  if (found == arrivals_.end()) return false;
  for (const Incoming& message : found->second)
    if (message.receive == nullptr && !message.discard) return message.complete() && message.total == bytes;
  return false;
}

bool Mailbox::forget(Operation& operation) {
  std::erase(posted_, &operation);
  for (auto& [tag, list] : arrivals_)
    for (Incoming& message : list)
      if (message.receive == &operation) {
        message.receive = nullptr;
        message.discard = true;
        return true;
      }
  return false;
}

void Mailbox::fail_all(const std::function<std::exception_ptr(const Operation&)>& error_for) {
  for (Operation* operation : std::exchange(posted_, {})) fail(*operation, error_for(*operation));
  for (auto& [tag, list] : arrivals_)
    for (Incoming& message : list)
      if (message.receive != nullptr) {
        fail(*message.receive, error_for(*message.receive));
        message.receive = nullptr;
        message.discard = true;
      }
}

std::vector<Incoming*> Mailbox::unclaimed_offers() {
  std::vector<Incoming*> found;
  for (auto& [tag, list] : arrivals_)
    for (Incoming& message : list)
      if (message.offer && !message.pulling && message.receive == nullptr && !message.discard)
        found.push_back(&message);
  return found;
}

}  // namespace lockstep::transport
