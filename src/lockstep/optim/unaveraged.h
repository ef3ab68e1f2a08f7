// A gradient that the optimizer averages, in the same pass over memory in which it makes its step.
//
// After backward, every rank's own gradient lies in memory that all ranks have mapped. Usually the ranks average them,
// and the optimizer then reads the average. Here the optimizer reads the parts of all ranks itself, a tile at a time:
//
//   parts of ranks 0, 1, ...   | tile | tile | tile | ...
//                                 |
//                                 v  mean, in the first-level cache
//                              | tile |
//                                 |
//                                 v  Adam or SGD
//   parameter, state           | tile | tile | tile | ...
//
// So the average is never written to memory and never read again. It is computed by the function that the collectives
// use, in rank order, and the step by the loop that all gradients use (kernel.h). So the bits are those of both steps.
// With two ranks there is no tile: the loop of the step reads both parts itself, and adds them in the same way.
//
// An Unaveraged is found through its parameter. Data parallelism makes it and says when the parts are complete;
// Adam, AdamW and SGD of lockstep/optimizer.h look for it where a parameter has no gradient. find() may be called from
// any thread; all else only from the thread that uses the parameter.
#pragma once

#include <torch/types.h>

#include <cstddef>
#include <utility>
#include <vector>

namespace lockstep::optim {

class Unaveraged {
 public:
  // The number of elements of a tile: 8 KB, which stay in the first-level cache beside what the step reads.
  static constexpr std::size_t kTile = 2048;

  // `parts` has one address per rank, each of as many elements as `parameter` has, which is contiguous and float32. The
  // mean belongs into `place`, which has the shape of the parameter; it may lie in one of the parts. The parts must
  // stay readable as long as this object exists.
  Unaveraged(torch::Tensor parameter, torch::Tensor place, std::vector<const std::byte*> parts);
  ~Unaveraged();
  Unaveraged(const Unaveraged&) = delete;
  Unaveraged& operator=(const Unaveraged&) = delete;

  // All ranks' parts are complete. parameter.grad() becomes undefined. Nobody may change the parts until the gradient
  // was used.
  void arrive();
  void drop() { pending_ = false; }
  // True from arrive() until an optimizer has used the gradient, or average() was called.
  bool is_pending() const { return pending_; }
  // Writes the mean into its place and makes it parameter.grad(), if it is pending.
  void average();

  // For optimizers. The pending gradient of this parameter, or null.
  static Unaveraged* find(const torch::Tensor& parameter);
  std::size_t parts() const { return parts_.size(); }
  const float* part(std::size_t rank) const { return reinterpret_cast<const float*>(parts_[rank]); }
  // Writes the mean of `count` elements to `tile`, starting at the element `begin`.
  void mean(std::size_t begin, std::size_t count, float* tile) const;
  void note_used() { pending_ = false; }

  // `place` as for the constructor.
  void set_place(torch::Tensor place) { place_ = std::move(place); }

 private:
  const torch::Tensor parameter_;
  torch::Tensor place_;
  const std::vector<const std::byte*> parts_;
  bool pending_ = false;
};

}  // namespace lockstep::optim
