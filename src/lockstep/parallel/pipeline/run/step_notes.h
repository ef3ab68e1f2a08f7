// The short messages by which the ranks of a step agree. The rank of the first stage tells the other ranks of its
// pipeline about the batch, because they may have been given nothing. The rank of the last stage tells all ranks the
// loss, as soon as it knows it.
//
// The messages are tensors: when an error ends a step, their memory lives as long as the transport may use it.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <vector>

#include "lockstep/communicator.h"
#include "lockstep/schedule.h"

namespace lockstep::pipeline {

// What a rank knows of the batch of a step; -1 and 0 stand for what it does not know.
struct BatchNote {
  std::int64_t rows = -1;      // of all pipelines together
  std::int64_t own_rows = -1;  // of this pipeline
  std::int64_t shape = 0;      // shape and type of the pipeline's inputs, as a hash
};

// The loss of one pipeline.
struct LossNote {
  double mean = 0;      // over the pipeline's own rows; not a number if it has none
  double own_rows = 0;  // as in BatchNote, and exact: there are fewer than 2^53
  double rows = 0;
};

class StepNotes {
 public:
  // `all` has the ranks of all pipelines, where ranks [r * n, (r + 1) * n) are pipeline r of n ranks. Both must outlive
  // this object. During a step, nobody else may use tags 0 and 1 of the communicator.
  StepNotes(Communicator& all, const Schedule& schedule);

  // Begins a step. The rank of the first stage tells the others what it knows. Returns what this rank knows then: if it
  // did not know the shape, it waits until it is told.
  BatchNote begin(std::int64_t step, const BatchNote& mine);
  // Waits for what the rank of the first stage tells, and throws Mismatch if this rank was given another batch.
  void compare();

  // Forgets the messages of the step. Called when an error ends it: while the exception is in flight, works are dropped
  // without waiting for peers (comm/tensor.cpp).
  void give_up();

  // Called on the rank of the last stage.
  void tell_loss(const LossNote& mine);
  // Returns the losses of all pipelines. Throws Mismatch if another pipeline has another batch.
  std::vector<LossNote> collect_losses();

 private:
  bool is_first() const { return all_.rank() == first_; }
  Rank last_of(int pipeline) const { return pipeline * schedule_.ranks + schedule_.rank_of_stage.back(); }

  Communicator& all_;
  const Schedule& schedule_;
  const int number_, pipelines_;
  const Rank first_;  // the rank that has the first stage of this rank's pipeline

  // The step that is under way.
  std::int64_t step_ = 0;
  BatchNote mine_;
  std::int64_t rows_ = -1;  // what all pipelines should agree on
  torch::Tensor told_;      // the BatchNote of the first rank
  LossNote loss_;           // of this rank's pipeline; only on the rank of the last stage
  std::vector<Work> receives_, sends_;
};

}  // namespace lockstep::pipeline
