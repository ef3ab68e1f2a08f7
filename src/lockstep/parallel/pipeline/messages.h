// The sends and receives of one rank's list, during one step.
//
// 1. A send is handed over and goes on by itself; its tensor is held until it is done.
// 2. Receives are posted ahead of where the rank is, in the list's order, so that what arrives goes straight to its
//    place while the rank computes. Only so many at a time: each takes a buffer.
// 3. In the step that exchanges shapes, an activation follows a message that describes it. Later each is compared with
//    what was said then: a Mismatch on the rank that would send another one.
// 4. When an exception passes, nothing is waited for (comm/tensor.h).
#pragma once

#include <torch/types.h>

#include <deque>
#include <unordered_map>

#include "lockstep/comm/communicator.h"
#include "lockstep/parallel/pipeline/buffers.h"
#include "lockstep/parallel/pipeline/schedule.h"
#include "lockstep/parallel/pipeline/shapes.h"

namespace lockstep::pipeline {

// What a rank knows of its messages: by SEND_F and RECV_F.
using KnownShapes = std::unordered_map<Action, Shape>;

// A tensor and what describes it, outside of any step. `stage` is the one that receives.
void send_whole(Communicator& comm, Rank peer, const torch::Tensor& tensor, int stage);
torch::Tensor receive_whole(Communicator& comm, Rank peer, int stage);

class Messages {
 public:
  // All must outlive it. `exchange`: this step tells the shapes.
  Messages(Communicator& comm, const Schedule& lowered, KnownShapes& shapes, Buffers& buffers, bool exchange);

  // At most so many receives are under way.
  static constexpr std::size_t kAhead = 2;
  // Posts receives, now that the rank is at `step` of its list.
  void post_ahead(std::size_t step);

  torch::Tensor receive(std::size_t step);
  void send(const Action& action, const torch::Tensor& tensor);
  // Lets go of sends that are done. The rank is at `step` of its list.
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
    torch::Tensor tensor;
    Work work;
  };

  const std::vector<Action>& list() const;
  Rank peer_of(const Action& message) const;
  void wait(Send& send, std::size_t step) const;
  Tag tag_of(const Action& message, bool description = false) const;
  const Shape* shape_of(const Action& receive) const;
  void learn(const Action& receive);

  Communicator& comm_;
  const Schedule& schedule_;
  KnownShapes& shapes_;
  Buffers& buffers_;
  const bool exchange_;
  std::size_t next_ = 0;  // posted are the receives of the list before this one
  std::deque<Receive> receives_;
  std::deque<Send> sends_;
};

}  // namespace lockstep::pipeline
