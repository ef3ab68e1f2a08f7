// A stage of which every replica of the pipeline has a copy: data parallelism across pipelines.
//
//   rank 0, stage 0 ──> rank 1, stage 1        replica 0, the first half of the batch
//      ║ gradients           ║ gradients
//   rank 2, stage 0 ──> rank 3, stage 1        replica 1, the second half
//
// The gradients of all microbatches are added up in DDP's buckets, and the last backward of a step reduces them. It
// does not wait for the reduction: the gradient of the stage's input is sent on, other stages drain, and finish() waits
// when there is nothing else to do.
#pragma once

#include <memory>

#include "lockstep/communicator.h"
#include "lockstep/parallel/data/reducer.h"
#include "lockstep/parallel/pipeline/run/stage.h"

namespace lockstep::pipeline {

// The contract is that of Stage, and in addition:
//  1. Each step runs `microbatches` microbatches on all replicas, and then finish() on all replicas.
//  2. The caller scales the losses so that the mean over the replicas is the wanted result.
//  3. `replicas` consists of the ranks that have this stage, and construction is collective over them.
class ReplicatedStage final : public Stage {
 public:
  ReplicatedStage(torch::nn::Sequential modules, const StageOptions& options, int microbatches, Communicator& replicas,
                  const DdpOptions& ddp = {});

  Activation forward(int microbatch, const Activation& input, Backward backward, const Tail& tail) override;
  Activation backward(int microbatch, const Activation& gradient) override;
  Activation input_gradient(int microbatch, const Activation& gradient) override;
  void weight_gradient(int microbatch) override;
  Activation infer(const Activation& input) override { return stage_.infer(input); }
  int live() const override { return stage_.live(); }
  void clear() override;

  // When it returns, the gradients are the mean over the replicas.
  void finish();
  const DdpStatistics& statistics() const { return reducer_.statistics(); }
  // The tensors to give to the optimizer.
  std::vector<torch::Tensor> parameters() const { return reducer_.optimized(); }

 private:
  // Runs `pass`, the part of a microbatch's backward that computes gradients of weights (B or W). The last one in a
  // step starts the reduction.
  template <typename Pass>
  auto reducing_the_last(Pass pass);

  torch::nn::Sequential modules_;
  SequentialStage stage_;
  parallel::Reducer reducer_;
  const int microbatches_;
  int forwards_ = 0, backwards_ = 0;  // number of calls in this step
};

}  // namespace lockstep::pipeline
