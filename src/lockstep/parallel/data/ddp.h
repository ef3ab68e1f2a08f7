// DistributedDataParallel for libtorch: the same model on every rank, each with its share of the batch, and gradients
// that are the mean over all ranks when backward returns.
//
//   lockstep::Communicator comm = lockstep::init();
//   auto model = std::make_shared<Net>();
//   lockstep::DistributedDataParallel ddp(model, comm);
//   torch::optim::Adam optimizer(ddp.parameters());
//   for (const auto& [x, y] : my_share) {
//     optimizer.zero_grad();
//     torch::nn::functional::cross_entropy(ddp.forward(x), y).backward();
//     optimizer.step();
//   }
//
// Contract:
//  1. Construction, and every forward and backward with gradients on, are collective: all ranks do them in the same
//     order. With sharded, so is the first forward after a step, gradients on or not, unless sync() came before it. The
//     weights and buffers that count are rank 0's.
//  2. When backward() returns, every gradient is the mean over all ranks, bit for bit the same on all of them (with
//     sharded, that of the blocks in parameters(); the rest is undefined). Inside no_sync() it is this rank's own.
//  3. Gradients are tensors over memory of ddp's, which they keep alive. A gradient that was set to none or replaced is
//     copied in at the next backward.
//  4. Parameters that are frozen at construction are left alone. Which ones are frozen, and which there are, must not
//     change later; a forward with gradients on finds it, by name.
//  5. A forward that trains (gradients on, the module in training, outside no_sync and join) is a step. Ranks that
//     reduce gradients of different steps all throw.
//  6. One thread at a time. `comm` and its world must outlive it; it has a communicator of its own.
//  7. After an error it is fit only to be destroyed.
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/comm/communicator.h"
#include "lockstep/parallel/data/bucket.h"
#include "lockstep/parallel/data/options.h"
#include "lockstep/parallel/data/outputs.h"
#include "lockstep/parallel/data/reducer.h"
#include "lockstep/parallel/data/step.h"

namespace lockstep {

template <typename Module>
class DistributedDataParallel {
 public:
  DistributedDataParallel(std::shared_ptr<Module> module, Communicator& comm, DdpOptions options = {})
      : module_(std::move(module)), reducer_(std::make_unique<parallel::Reducer>(*module_, comm, std::move(options))) {}
  // torch's holders: `Net net;` after TORCH_MODULE(Net).
  DistributedDataParallel(const torch::nn::ModuleHolder<Module>& holder, Communicator& comm, DdpOptions options = {})
      : DistributedDataParallel(holder.ptr(), comm, std::move(options)) {}

  // Whatever the module's forward takes and gives.
  template <typename... Arguments>
  auto forward(Arguments&&... arguments) {
    const auto pass = reducer_->begin_forward();
    auto output = module_->forward(std::forward<Arguments>(arguments)...);
    parallel::for_each_tensor(output, [&](const torch::Tensor& tensor) { reducer_->watch(tensor); });
    return output;
  }
  template <typename... Arguments>
  auto operator()(Arguments&&... arguments) {
    return forward(std::forward<Arguments>(arguments)...);
  }

  // What the optimizer works on: the trained parameters, each once; with flat, blocks of them; with sharded, this
  // rank's blocks.
  std::vector<torch::Tensor> parameters() const { return reducer_->optimized(); }
  Module& module() { return *module_; }
  Module* operator->() { return module_.get(); }

  // With DdpOptions::deferred: when it returns, gradients are the mean over all ranks, as otherwise when backward does.
  void finish() { reducer_->finish(); }

  // Until the guard goes, backward leaves each rank its own gradients, to be accumulated.
  [[nodiscard]] parallel::NoSync no_sync() { return reducer_->no_sync(); }

  // Runs `body`, the loop over this rank's batches, whose number may differ. Ranks that are done take part in the
  // others' collectives with zeros until all are done; the weights at the end are those of the last active rank.
  void join(const std::function<void()>& body, const JoinOptions& options = {}) { reducer_->join(body, options); }

  // Collective. With sharded: the parameters that the other ranks have updated are here when it returns. The next
  // forward does the same.
  void sync() { reducer_->sync(); }

  // Scales the gradients so that their norm over all parameters is at most this; gives the norm before. Collective.
  double clip_grad_norm(double max_norm, double norm_type = 2) { return reducer_->clip_grad_norm(max_norm, norm_type); }

  // Of the last step.
  const parallel::Statistics& statistics() const { return reducer_->statistics(); }
  // The buckets and what is in them, as a table.
  std::string layout() const { return reducer_->layout(); }
  Communicator& communicator() { return reducer_->communicator(); }

 private:
  std::shared_ptr<Module> module_;
  std::unique_ptr<parallel::Reducer> reducer_;
};

template <typename Holder>
requires std::derived_from<Holder, torch::nn::ModuleHolder<typename Holder::ContainedType>> DistributedDataParallel(
    const Holder&, Communicator&, DdpOptions = {})
->DistributedDataParallel<typename Holder::ContainedType>;

// One whole step, as in naive.h, with the model inside `loss` called through ddp. Gives this rank's loss.
template <typename Optimizer>
torch::Tensor ddp_step(Optimizer& optimizer, const Loss& loss) {
  optimizer.zero_grad();
  torch::Tensor value = loss();
  value.backward();
  optimizer.step();
  return value.detach();
}

}  // namespace lockstep
