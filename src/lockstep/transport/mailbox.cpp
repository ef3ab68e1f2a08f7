#include "lockstep/transport/mailbox.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "lockstep/base/error.h"

namespace lockstep::transport {

std::string Operation::describe() const {
  return fmt::format("{} of {} {} rank {}, tag {}", kind == Kind::send ? "send" : "recv", describe_bytes(bytes),
                     kind == Kind::send ? "to" : "from", peer, tag);
}

void complete(Operation& operation) { operation.state.store(Operation::State::done, std::memory_order_release); }

void fail(Operation& operation, std::exception_ptr error) {
  if (!operation.pending()) return;
  operation.error = std::move(error);
  operation.state.store(Operation::State::failed, std::memory_order_release);
}

void fail_size(Operation& operation, std::size_t message_bytes) {
  fail(operation,
       std::make_exception_ptr(Mismatch(
           fmt::format("{}: rank {} sent {}", operation.describe(), operation.peer, describe_bytes(message_bytes)),
           "the same size on both sides, or tags that tell the messages apart")));
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

Incoming& Mailbox::message_for(Tag tag, std::size_t total) {
  // Pieces of one tag come in order, so an incomplete message with this tag is the one.
  for (Incoming& message : arrivals_)
    if (message.tag == tag && !message.offer && !message.complete()) return message;
  Incoming& message = arrivals_.emplace_back(Incoming{tag, total, 0, nullptr, nullptr, false, std::nullopt, false});
  match(message);
  if (message.receive == nullptr && !message.discard)
    message.own = std::make_unique_for_overwrite<std::byte[]>(std::max<std::size_t>(total, 1));
  return message;
}

Incoming& Mailbox::offered(Tag tag, std::size_t total, Offer offer) {
  Incoming& message = arrivals_.emplace_back(Incoming{tag, total, 0, nullptr, nullptr, false, offer, false});
  match(message);
  return message;
}

void Mailbox::match(Incoming& message) {
  if (Operation* operation = take_posted(message.tag)) attach(message, *operation);
}

void Mailbox::attach(Incoming& message, Operation& operation) {
  if (operation.bytes != message.total) {
    fail_size(operation, message.total);
    message.discard = true;
    if (!message.pulling) message.own.reset();
    return;
  }
  message.receive = &operation;
  if (message.pulling) return;  // it is being written to our own memory this moment; advance() will copy it
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
    erase(message);
  } else if (message.discard) {
    erase(message);
  }
}

void Mailbox::erase(Incoming& message) {
  arrivals_.remove_if([&](const Incoming& other) { return &other == &message; });
}

void Mailbox::drop(Incoming& message) { erase(message); }

Incoming* Mailbox::receive(Operation& operation) {
  for (Incoming& message : arrivals_) {
    if (message.tag != operation.tag || message.receive != nullptr || message.discard) continue;
    attach(message, operation);
    if (message.pulling) return nullptr;
    if (message.offer) return &message;
    advance(message, 0);  // it may be complete already
    return nullptr;
  }
  posted_.push_back(&operation);
  return nullptr;
}

void Mailbox::forget(Operation& operation) {
  std::erase(posted_, &operation);
  for (Incoming& message : arrivals_)
    if (message.receive == &operation) {
      message.receive = nullptr;
      message.discard = true;
      return;
    }
}

void Mailbox::fail_all(const std::exception_ptr& error) {
  for (Operation* operation : std::exchange(posted_, {})) fail(*operation, error);
  for (Incoming& message : arrivals_)
    if (message.receive != nullptr) {
      fail(*message.receive, error);
      message.receive = nullptr;
      message.discard = true;
    }
}

}  // namespace lockstep::transport
