// A stage of which every replica of the pipeline has a copy: data parallelism across pipelines.
//
//   rank 0, stage 0 ──> rank 1, stage 1        replica 0, the first half of the batch
//      ║ gradients           ║ gradients
//   rank 2, stage 0 ──> rank 3, stage 1        replica 1, the second half
//
// Microbatches add their gradients up in DDP's buckets; the last backward of a step reduces them. It does not wait: the
// gradient of the stage's input travels on, other stages drain, and finish() waits when there is nothing else to do.
#pragma once

#include <memory>

#include "lockstep/comm/communicator.h"
#include "lockstep/parallel/data/reducer.h"
#include "lockstep/parallel/pipeline/stage.h"

namespace lockstep::pipeline {

// Contract of Stage, and:
//  1. Each step has `microbatches`, on all replicas; then comes finish(), on all replicas.
//  2. Losses are scaled so that the mean over the replicas is what is wanted.
//  3. `replicas` are the ranks that have this stage, and construction is collective over them.
class ReplicatedStage final : public Stage {
 public:
  ReplicatedStage(torch::nn::Sequential modules, const StageOptions& options, int microbatches, Communicator& replicas,
                  const DdpOptions& ddp = {});

  torch::Tensor forward(int microbatch, const torch::Tensor& input, Backward backward, const Tail& tail) override;
  torch::Tensor backward(int microbatch, const torch::Tensor& gradient) override;
  torch::Tensor input_gradient(int microbatch, const torch::Tensor& gradient) override;
  void weight_gradient(int microbatch) override;
  torch::Tensor infer(const torch::Tensor& input) override { return stage_.infer(input); }
  int live() const override { return stage_.live(); }
  void clear() override;

  // Gradients are the mean over the replicas when it returns.
  void finish();
  const parallel::Statistics& statistics() const { return reducer_.statistics(); }

 private:
  // Runs `pass`, the backward of a microbatch that leaves gradients of weights.
  template <typename Pass>
  auto reducing_the_last(Pass pass);

  torch::nn::Sequential modules_;
  SequentialStage stage_;
  parallel::Reducer reducer_;
  const int microbatches_;
  int forwards_ = 0, backwards_ = 0;  // in this step
};

}  // namespace lockstep::pipeline
