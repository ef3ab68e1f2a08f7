// DistributedDataParallel for libtorch: every rank has the same model and its own share of the batch, and the gradients
// are the mean over all ranks when backward returns.
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
//  1. Construction, and every forward and backward while gradients are enabled, are collective: all ranks call them in
//     the same order. With sharded, the first forward after an optimizer step is collective too, whether gradients are
//     enabled or not, unless sync() was called before it. All ranks use the weights and buffers of rank 0.
//  2. When backward() returns (with deferred: when finish() returns), every gradient is the mean over all ranks and has
//     the same bits on all of them. With sharded, this holds for the gradients of the blocks in parameters(), and all
//     other gradients are undefined. Inside no_sync(), every gradient is this rank's own.
//  3. Gradients are tensors over memory that belongs to this object, and they keep that memory alive. If a
//     gradient was set to none or replaced, the next backward copies the new gradient into this memory.
//  4. Parameters that are frozen at construction are left alone. The set of parameters, and which of them are frozen,
//     must not change later. A forward with gradients enabled throws a UsageError with the name of a parameter that was
//     added, removed, replaced or unfrozen. A parameter that was frozen later counts as unused (see
//     DdpOptions::allow_unused).
//  5. A step is a forward with gradients enabled and the module in training mode, outside of no_sync() and join(). If
//     ranks reduce gradients of different steps, all of them throw.
//  6. Only one thread at a time may use this object. `comm` and its world must outlive it. It has its own communicator,
//     made from `comm`.
//  7. After an error, the object can only be destroyed.
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
  // For torch's module holders: `Net net;` after TORCH_MODULE(Net).
  DistributedDataParallel(const torch::nn::ModuleHolder<Module>& holder, Communicator& comm, DdpOptions options = {})
      : DistributedDataParallel(holder.ptr(), comm, std::move(options)) {}
  // A module on the stack, as in `Net net;`, cannot be shared.
  template <typename OnTheStack>
  requires std::derived_from<OnTheStack, torch::nn::Module> DistributedDataParallel(const OnTheStack&, Communicator&,
                                                                                    DdpOptions = {}) {
    static_assert(!std::derived_from<OnTheStack, torch::nn::Module>,
                  "DistributedDataParallel shares the module with you, so it must not be on the stack. Write "
                  "`auto net = std::make_shared<Net>();` instead of `Net net;`, or use TORCH_MODULE.");
  }

  // Takes the arguments of the module's forward, and returns its result.
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

  // The tensors to give to the optimizer: the trained parameters, each once. With flat: blocks of them. With sharded:
  // this rank's blocks.
  std::vector<torch::Tensor> parameters() const { return reducer_->optimized(); }
  Module& module() { return *module_; }
  Module* operator->() { return module_.get(); }

  // With DdpOptions::deferred: when it returns, the gradients are the mean over all ranks. Without deferred, backward()
  // ensures this itself.
  void finish() { reducer_->finish(); }

  // Until the guard is destroyed, backward leaves each rank its own gradients, so that they can be accumulated.
  [[nodiscard]] parallel::NoSync no_sync() { return reducer_->no_sync(); }

  // Runs `body`, the loop over this rank's batches. Ranks may have different numbers of batches: ranks that are done
  // take part in the others' collectives with zeros until all are done. At the end all ranks get the weights of a rank
  // that was active to the last.
  void join(const std::function<void()>& body, const JoinOptions& options = {}) { reducer_->join(body, options); }

  // Collective. With sharded: when it returns, this rank sees the parameters that the other ranks have updated. The
  // next forward does the same.
  void sync() { reducer_->sync(); }

  // Collective. Scales the gradients so that their norm over all parameters is at most `max_norm`. Returns the norm
  // before scaling.
  double clip_grad_norm(double max_norm, double norm_type = 2) { return reducer_->clip_grad_norm(max_norm, norm_type); }

  // Times of the last step.
  const parallel::Statistics& statistics() const { return reducer_->statistics(); }
  // The buckets and their contents, as a table.
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

template <typename OnTheStack>
requires std::derived_from<OnTheStack, torch::nn::Module> DistributedDataParallel(const OnTheStack&, Communicator&,
                                                                                  DdpOptions = {})
->DistributedDataParallel<OnTheStack>;

// One whole training step, as in naive.h. `loss` must call the model through ddp. Returns this rank's loss.
template <typename Optimizer>
torch::Tensor ddp_step(Optimizer& optimizer, const Loss& loss) {
  optimizer.zero_grad();
  torch::Tensor value = loss();
  value.backward();
  optimizer.step();
  return value.detach();
}

}  // namespace lockstep
