// The sends and receives of one rank's list, during one step.
//
// 1. A send is started and continues by itself; its tensor is kept alive until the send is done.
// 2. Receives are posted before the rank needs them, in the order of the list, so that a message that arrives while the
//    rank computes goes straight to its place. At most kAhead receives are posted at a time, because each takes a
//    buffer.
// 3. In the step that exchanges shapes, each activation follows a message that describes its shape. In later steps,
//    each activation is compared with this shape before it is sent; if it differs, the sending rank throws Mismatch.
// 4. The tensors of an activation travel one after the other under one tag. A tensor that has no gradient, such as an
//    integer mask, travels only forward.
// 5. When an exception ends the step, its works are destroyed without waiting for the peers (comm/tensor.cpp).
#pragma once

#include <torch/types.h>

#include <deque>
#include <unordered_map>

#include "lockstep/communicator.h"
#include "lockstep/parallel/pipeline/run/activation.h"
#include "lockstep/parallel/pipeline/run/buffers.h"
#include "lockstep/parallel/pipeline/run/shapes.h"
#include "lockstep/schedule.h"

namespace lockstep::pipeline {

// The shapes that a rank knows, by the SEND_F or RECV_F action of the activation.
using KnownShapes = std::unordered_map<Action, Shapes>;

// Send and receive an activation together with its shapes, outside of any step. `tag` tells apart what travels between
// the same two ranks at the same time.
void send_whole(Communicator& comm, Rank peer, const Activation& activation, int tag);
Activation receive_whole(Communicator& comm, Rank peer, int tag);

class Messages {
 public:
  // All arguments must outlive this object. `exchange` says whether shapes are exchanged in this step.
  Messages(Communicator& comm, const Schedule& lowered, KnownShapes& shapes, Buffers& buffers, bool exchange);

  // The largest number of receives in flight.
  static constexpr std::size_t kAhead = 2;
  // Posts receives ahead of `step`, the rank's position in its list.
  void post_ahead(std::size_t step);

  Activation receive(std::size_t step);
  void send(const Action& action, const Activation& activation);
  // Forgets sends that are done. `step` is the rank's position in its list. Throws if a send has failed.
  void collect(std::size_t step);
  // Waits for all sends.
  void finish();

 private:
  struct Send {
    Action action;
    Work work;
  };
  struct Receive {
    std::size_t step = 0;
    Activation activation;
    std::vector<Work> works;  // one for each tensor that travels
  };

  const std::vector<Action>& list() const;
  Rank peer_of(const Action& message) const;
  void wait(Send& send, std::size_t step) const;
  Tag tag_of(const Action& message, bool description = false) const;
  const Shapes* shapes_of(const Action& receive) const;
  void learn(const Action& receive);
  void send_gradient(const Action& action, const Activation& gradient);
  void start_send(const Action& action, const torch::Tensor& tensor);

  Communicator& comm_;
  const Schedule& schedule_;
  KnownShapes& shapes_;
  Buffers& buffers_;
  const bool exchange_;
  std::size_t next_ = 0;  // all receives before this position of the list have been posted
  std::deque<Receive> receives_;
  std::deque<Send> sends_;
};

}  // namespace lockstep::pipeline
