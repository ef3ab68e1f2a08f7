#include "lockstep/parallel/pipeline/run/messages.h"

#include <fmt/format.h>
#include <algorithm>

#include "lockstep/error.h"
#include "lockstep/parallel/pipeline/run/with_position.h"
#include "lockstep/parallel/pipeline/schedule/tags.h"
#include "lockstep/parallel/pipeline/schedule/words.h"
#include "lockstep/tensor.h"

namespace lockstep::pipeline {

namespace {

// A tensor as it is sent: communicators have no type for booleans.
torch::Tensor bytes_of_booleans(const torch::Tensor& tensor) {
  return tensor.scalar_type() == at::kBool ? tensor.view(at::kByte) : tensor;
}

bool is_gradient(Kind kind) { return kind == Kind::SEND_B || kind == Kind::RECV_B; }

}  // namespace

void send_whole(Communicator& comm, Rank peer, const Activation& activation, int number) {
  const auto tag = static_cast<Tag>(number);  // messages of one peer and tag arrive in order: first the description
  comm.send(peer, to_wire(Shapes::of(activation)), tag);
  for (const torch::Tensor& tensor : activation.tensors()) comm.send(peer, bytes_of_booleans(tensor), tag);
}

Activation receive_whole(Communicator& comm, Rank peer, int number) {
  const auto tag = static_cast<Tag>(number);
  const torch::Tensor wire = empty_wire();
  comm.recv(peer, wire, tag);
  const Shapes shapes = from_wire(wire);
  std::vector<torch::Tensor> tensors;
  for (const Shape& shape : shapes.tensors) {
    tensors.push_back(torch::empty(shape.sizes, at::TensorOptions(shape.dtype)));
    comm.recv(peer, bytes_of_booleans(tensors.back()), tag);
  }
  return {shapes.form, std::move(tensors)};
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
const Shapes* Messages::shapes_of(const Action& receive) const {
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
    const Shapes* shapes = shapes_of(action);
    if (shapes == nullptr) return;  // first step: its description has not come yet
    Receive receive{.step = next_, .activation = {}, .works = {}};
    std::vector<torch::Tensor> tensors;
    for (const Shape& shape : shapes->tensors) {
      const bool travels = shape.is_floating_point() || !is_gradient(action.kind);
      tensors.push_back(travels ? buffers_.take(shape) : torch::Tensor());
      if (!travels) continue;
      receive.works.push_back(comm_.recv_async(peer_of(action), bytes_of_booleans(tensors.back()), tag_of(action)));
    }
    receive.activation = Activation(shapes->form, std::move(tensors));
    receives_.push_back(std::move(receive));
  }
}
// endregion

Activation Messages::receive(std::size_t step) {
  const Action& action = list()[step];
  if (exchange_ && action.kind == Kind::RECV_F) learn(action);
  post_ahead(step);
  Receive receive = std::move(receives_.front());  // the oldest is the one for `step`: both follow the list
  receives_.pop_front();
  for (Work& work : receive.works) work.wait();
  return receive.activation;
}

void Messages::send(const Action& action, const Activation& activation) {
  if (action.kind == Kind::SEND_B) return send_gradient(action, activation);
  const Shapes shapes = Shapes::of(activation);
  const auto [known, is_new] = shapes_.try_emplace(action, shapes);
  if (is_new)
    sends_.push_back({action, comm_.send_async(peer_of(action), to_wire(shapes), tag_of(action, true))});
  else if (!(known->second == shapes))
    throw Mismatch(fmt::format("the activation of stage {}, microbatch {} is {}, but was {} in the first step",
                               action.stage, action.microbatch, to_string(shapes), to_string(known->second)),
                   "batches of one size, or Executor::new_shapes() on all ranks before the step");
  for (const torch::Tensor& tensor : activation.tensors()) start_send(action, tensor);
}

// The receiver expects a gradient for every floating-point tensor of the activation that this stage received.
void Messages::send_gradient(const Action& action, const Activation& gradient) {
  const Shapes& shapes = shapes_.at({action.stage, Kind::RECV_F, action.microbatch});
  for (std::size_t i = 0; i < shapes.tensors.size(); ++i) {
    const Shape& shape = shapes.tensors[i];
    if (!shape.is_floating_point()) continue;
    const bool is_there = i < gradient.tensors().size() && gradient.tensors()[i].defined();
    start_send(action, is_there ? gradient.tensors()[i] : torch::zeros(shape.sizes, at::TensorOptions(shape.dtype)));
  }
}

void Messages::start_send(const Action& action, const torch::Tensor& tensor) {
  sends_.push_back({action, comm_.send_async(peer_of(action), bytes_of_booleans(tensor), tag_of(action))});
}

void Messages::learn(const Action& receive) {
  const torch::Tensor wire = empty_wire();
  comm_.recv(peer_of(receive), wire, tag_of(receive, true));
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
  with_context_of(
      [&] { return fmt::format("it also {}", in_words(send.action, comm_.world_rank(peer_of(send.action)))); },
      [&] { send.work.wait(); });
}

void Messages::finish() {
  for (Send& send : sends_) wait(send, list().size());
  sends_.clear();
}

}  // namespace lockstep::pipeline
