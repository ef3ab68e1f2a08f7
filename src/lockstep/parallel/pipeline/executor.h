// Runs one rank's part of any schedule, step by step: the loop over a list of actions that is all a pipeline is.
//
//   Executor pipeline(comm, make_schedule("1f1b", comm.size(), 8), stages, loss);
//   StepResult result = pipeline.step(cut_batch(inputs, 8), cut_batch(targets, 8));
//   optimizer.step();
//
// The schedule is verified and lowered first. Stages that are neighbours on one rank hand over directly; between ranks
// activations and gradients travel as messages (messages.h). After step() the gradients of the whole batch's mean loss
// have been added to the weights' .grad(): each microbatch counts by its share of the rows.
//
// Errors that come up in a step say in words what the rank was doing, as in "rank 1 waits for the activation of
// microbatch 2 from stage 0 (rank 0) in step 3 (action 7, 1RECV_F2): ...". Steps and actions of the rank's lowered list
// count from 0. After an error, the communicator is fit only to be destroyed. One thread at a time.
#pragma once

#include <torch/types.h>

#include <functional>
#include <memory>
#include <optional>
#include <unordered_set>
#include <vector>

#include "lockstep/comm/communicator.h"
#include "lockstep/parallel/pipeline/buffers.h"
#include "lockstep/parallel/pipeline/messages.h"
#include "lockstep/parallel/pipeline/moments.h"
#include "lockstep/parallel/pipeline/schedule.h"
#include "lockstep/parallel/pipeline/stage.h"

namespace lockstep::pipeline {

// The mean over the rows of a microbatch.
using Loss = std::function<torch::Tensor(const torch::Tensor& output, const torch::Tensor& target)>;

struct StepResult {
  std::optional<double> loss;  // the batch's mean, on the rank of the last stage
  Timeline timeline;           // when this rank did what
  int peak_activations = 0;    // the most microbatches that this rank's stages kept at once
};

class Executor {
 public:
  // Collective: a rank with another schedule is a Mismatch on all. `stages` are this rank's, in the order of their
  // numbers. The communicator must outlive it and have no other user of its tags.
  Executor(Communicator& comm, const Schedule& schedule, std::vector<std::shared_ptr<Stage>> stages, Loss loss);

  // On all ranks. Inputs count on the rank of the first stage, targets on that of the last (both have a row for each
  // sample); others may pass nothing. As many as the schedule has microbatches, or a UsageError.
  StepResult step(const std::vector<torch::Tensor>& inputs, const std::vector<torch::Tensor>& targets);

  // On all ranks: one batch through all stages, without gradients and without microbatches. `input` counts on the rank
  // of the first stage; the output is that of the last, elsewhere undefined.
  torch::Tensor infer(const torch::Tensor& input);

  // On all ranks: the next step exchanges shapes again, as the first one did. For batches of another size.
  void new_shapes();

  const Schedule& schedule() const { return schedule_; }  // lowered
  bool has_first_stage() const { return has(0); }
  bool has_last_stage() const { return has(schedule_.stages - 1); }

 private:
  class Run;

  bool has(int stage) const { return schedule_.rank_of_stage[static_cast<std::size_t>(stage)] == comm_.rank(); }
  void check_same_everywhere() const;
  void check_count(const char* what, std::size_t count) const;

  Communicator& comm_;
  Schedule schedule_;
  std::vector<std::shared_ptr<Stage>> stages_;  // [stage], null for those of other ranks
  Loss loss_;
  std::unordered_set<Action> splits_;  // this rank's I
  KnownShapes shapes_;
  Buffers buffers_;
  bool shapes_are_known_ = false;
  int steps_ = 0;
};

}  // namespace lockstep::pipeline
