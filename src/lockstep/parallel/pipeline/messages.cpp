#include "lockstep/parallel/pipeline/messages.h"

#include <fmt/format.h>
#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/comm/tensor.h"
#include "lockstep/parallel/pipeline/placed.h"
#include "lockstep/parallel/pipeline/tags.h"
#include "lockstep/parallel/pipeline/words.h"

namespace lockstep::pipeline {

void send_whole(Communicator& comm, Rank peer, const torch::Tensor& tensor, int stage) {
  const auto tag = static_cast<Tag>(stage);  // messages of one peer and tag arrive in order: first the description
  send(comm, peer, to_wire(Shape::of(tensor)), tag);
  send(comm, peer, tensor, tag);
}

torch::Tensor receive_whole(Communicator& comm, Rank peer, int stage) {
  const auto tag = static_cast<Tag>(stage);
  const torch::Tensor wire = empty_wire();
  recv(comm, peer, wire, tag);
  const Shape shape = from_wire(wire);
  const torch::Tensor tensor = torch::empty(shape.sizes, at::TensorOptions(shape.dtype));
  recv(comm, peer, tensor, tag);
  return tensor;
}

Messages::Messages(Communicator& comm, const Schedule& lowered, KnownShapes& shapes, Buffers& buffers, bool exchange)
    : comm_(comm), schedule_(lowered), shapes_(shapes), buffers_(buffers), exchange_(exchange) {}

const std::vector<Action>& Messages::list() const { return schedule_.actions[static_cast<std::size_t>(comm_.rank())]; }

Rank Messages::peer_of(const Action& message) const {
  return schedule_.rank_of_stage[static_cast<std::size_t>(other_end(message).stage)];
}

// A message's tag is made from the stage that sends.
Tag Messages::tag_of(const Action& message, bool described) const {
  const bool forward = message.kind == Kind::SEND_F || message.kind == Kind::RECV_F;
  const int stage = is_send(message.kind) ? message.stage : other_end(message).stage;
  const Stream stream = described ? description : forward ? activation : gradient;
  return static_cast<Tag>(pipeline::tag_of(schedule_, stage, message.microbatch, stream));
}

// Returns null if the shape is not known yet.
const Shape* Messages::shape_of(const Action& receive) const {
  // The gradient of an activation that this stage sent has the shape of that activation.
  const Kind known_by = receive.kind == Kind::RECV_B ? Kind::SEND_F : Kind::RECV_F;
  const auto found = shapes_.find({receive.stage, known_by, receive.microbatch});
  return found == shapes_.end() ? nullptr : &found->second;
}

// region post_ahead
void Messages::post_ahead(std::size_t step) {
  for (next_ = std::max(next_, step); next_ < list().size() && receives_.size() < kAhead; ++next_) {
    const Action& action = list()[next_];
    if (!is_recv(action.kind)) continue;
    const Shape* shape = shape_of(action);
    if (shape == nullptr) return;  // first step: its description has not come yet
    Receive receive{.step = next_, .tensor = buffers_.take(*shape), .work = {}};
    receive.work = recv_async(comm_, peer_of(action), receive.tensor, tag_of(action));
    receives_.push_back(std::move(receive));
  }
}
// endregion

torch::Tensor Messages::receive(std::size_t step) {
  const Action& action = list()[step];
  if (exchange_ && action.kind == Kind::RECV_F) learn(action);
  post_ahead(step);
  Receive receive = std::move(receives_.front());  // the oldest is the one for `step`: both follow the list
  receives_.pop_front();
  receive.work.wait();
  return receive.tensor;
}

void Messages::send(const Action& action, const torch::Tensor& tensor) {
  if (action.kind == Kind::SEND_F) {
    const Shape shape = Shape::of(tensor);
    const auto [known, is_new] = shapes_.try_emplace(action, shape);
    if (is_new)
      sends_.push_back({action, send_async(comm_, peer_of(action), to_wire(shape), tag_of(action, true))});
    else if (!(known->second == shape))
      throw Mismatch(fmt::format("the activation of stage {}, microbatch {} is {}, but was {} in the first step",
                                 action.stage, action.microbatch, to_string(shape), to_string(known->second)),
                     "batches of one size, or Executor::new_shapes() on all ranks before the step");
  }
  sends_.push_back({action, send_async(comm_, peer_of(action), tensor, tag_of(action))});
}

void Messages::learn(const Action& receive) {
  const torch::Tensor wire = empty_wire();
  recv(comm_, peer_of(receive), wire, tag_of(receive, true));
  shapes_[receive] = from_wire(wire);
}

void Messages::collect(std::size_t step) {
  while (!sends_.empty() && sends_.front().work.done()) {
    wait(sends_.front(), step);  // does not block, but throws if the send failed
    sends_.pop_front();
  }
}

// If the rank is at another action by now, the error names the message of the send.
void Messages::wait(Send& send, std::size_t step) const {
  if (step < list().size() && list()[step] == send.action) return send.work.wait();
  with_prefix(
      [&] { return fmt::format("it also {}: ", in_words(send.action, comm_.world_rank(peer_of(send.action)))); },
      [&] { send.work.wait(); });
}

void Messages::finish() {
  for (Send& send : sends_) wait(send, list().size());
  sends_.clear();
}

}  // namespace lockstep::pipeline
