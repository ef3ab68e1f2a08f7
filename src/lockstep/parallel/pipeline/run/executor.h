// Runs one rank's part of any schedule, action by action. A pipeline is nothing more than this loop over a list of
// actions.
//
//   Executor pipeline(comm, make_schedule("1f1b", comm.size(), 8), stages, loss);
//   ExecutedStep result = pipeline.step(cut_batch(inputs, 8), cut_batch(targets, 8));
//   optimizer.step();
//
// The schedule is verified and lowered first. Neighbouring stages on one rank pass tensors directly; between ranks,
// activations and gradients travel as messages (messages.h). After step(), the gradients of the mean loss of the whole
// batch have been added to the weights' .grad(); each microbatch counts by its share of the rows.
//
// Errors in a step say in words what the rank was doing, as in "rank 1 waits for the activation of microbatch 2 from
// stage 0 (rank 0) in step 3 (action 7, 1RECV_F2): ...". Steps, and the actions of the rank's lowered list, are counted
// from 0. After an error, the communicator can only be destroyed. Only one thread at a time may use an Executor.
#pragma once

#include <torch/types.h>

#include <functional>
#include <memory>
#include <optional>
#include <unordered_set>
#include <vector>

#include "lockstep/communicator.h"
#include "lockstep/parallel/pipeline/run/buffers.h"
#include "lockstep/parallel/pipeline/run/messages.h"
#include "lockstep/parallel/pipeline/run/moments.h"
#include "lockstep/parallel/pipeline/run/stage.h"
#include "lockstep/pipeline.h"
#include "lockstep/schedule.h"

namespace lockstep::pipeline {

struct ExecutedStep {
  std::optional<double> loss;  // mean loss of the batch; only on the rank of the last stage
  Timeline timeline;           // when this rank did each action
  int peak_activations = 0;    // the most activations that this rank kept at once, counted per stage and microbatch
};

class Executor {
 public:
  // Collective. Throws Mismatch on all ranks if their schedules differ. `stages` are this rank's stages, in the order
  // of their numbers. The communicator must outlive the executor, and nobody else may use its tags.
  Executor(Communicator& comm, const Schedule& schedule, std::vector<std::shared_ptr<Stage>> stages, LossFunction loss);

  // Must be called on all ranks. `inputs` are used on the rank of the first stage, and `targets` on the rank of the
  // last stage; both have one row per sample. Other ranks may pass empty vectors. Throws UsageError if there are not as
  // many of them as the schedule has microbatches.
  ExecutedStep step(const std::vector<torch::Tensor>& inputs, const std::vector<torch::Tensor>& targets);

  // Must be called on all ranks. Runs one batch through all stages, without gradients and without microbatches. `input`
  // is used on the rank of the first stage. Returns the output on the rank of the last stage, and nothing elsewhere.
  Activation infer(const torch::Tensor& input);

  // Must be called on all ranks, before a step with batches of another size. That step exchanges shapes again, as the
  // first one did.
  void new_shapes();

  // From now on, `told` is called in every step on the rank of the last stage with the mean loss of the batch, as soon
  // as it is known: after the last forward, and before the step is done.
  void on_loss(std::function<void(double loss)> told) { on_loss_ = std::move(told); }

  // From now on, `body` is called in every step before this rank's first forward, when its input is there.
  void before_first_forward(std::function<void()> body) { before_first_forward_ = std::move(body); }

  const Schedule& schedule() const { return schedule_; }  // the lowered schedule
  bool has_first_stage() const { return has(0); }
  bool has_last_stage() const { return has(schedule_.stages - 1); }

 private:
  class Run;

  bool has(int stage) const { return schedule_.rank_of_stage[index_of(stage)] == comm_.rank(); }
  void check_same_everywhere() const;
  void check_count(const char* what, std::size_t count) const;

  Communicator& comm_;
  Schedule schedule_;
  std::vector<std::shared_ptr<Stage>> stages_;  // [stage], null for stages of other ranks
  LossFunction loss_;
  std::function<void(double)> on_loss_;
  std::function<void()> before_first_forward_;
  std::unordered_set<Action> splits_;  // the I actions of this rank
  KnownShapes shapes_;
  Buffers buffers_;
  bool shapes_are_known_ = false;
  int steps_ = 0;
};

}  // namespace lockstep::pipeline
