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
//     the same order. With sharded, a forward after a backward is collective, too, whether gradients are enabled or
//     not, until the ranks have met after the optimizer's step, in a forward or in sync(). So before a forward on one
//     rank alone, call sync() on all ranks. All ranks use the weights and buffers of rank 0.
//  2. When backward() returns (with deferred: when finish() returns), every gradient is the mean over all ranks and has
//     the same bits on all of them. With sharded, this holds for the gradients of the blocks in parameters(), and all
//     other gradients are undefined (with fused_update, those of the blocks, too). Inside no_sync(), every gradient is
//     this rank's own.
//  3. Gradients are tensors over memory that belongs to this object, and they keep that memory alive. If a gradient is
//     undefined (as after zero_grad()) or was replaced, the new one is written into this memory by backward, or copied
//     there. A gradient that the program keeps after zero_grad() does not change: when its
//     memory is needed, it gets memory of its own. Only tensors are kept in this way, not pointers that data_ptr() has
//     returned.
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

#include <concepts>
#include <functional>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "lockstep/communicator.h"
#include "lockstep/gradients.h"
#include "lockstep/kinds.h"

namespace lockstep {

namespace parallel {
class Reducer;

template <typename T>
inline constexpr bool is_vector = false;
template <typename T, typename Allocator>
inline constexpr bool is_vector<std::vector<T, Allocator>> = true;

// Calls `visit` for every tensor in the result of a module's forward. The result may be a tensor, or pairs, tuples,
// vectors and optionals of such results. A result of any other type is treated as one without tensors.
template <typename Output, typename Visit>
void for_each_tensor(const Output& output, const Visit& visit) {
  if constexpr (std::convertible_to<const Output&, const torch::Tensor&>) {
    visit(output);
  } else if constexpr (is_vector<Output>) {
    for (const auto& item : output) for_each_tensor(item, visit);
  } else if constexpr (requires { output.has_value(), *output; }) {
    if (output.has_value()) for_each_tensor(*output, visit);
  } else if constexpr (requires { std::tuple_size<Output>::value; }) {
    std::apply([&](const auto&... items) { (for_each_tensor(items, visit), ...); }, output);
  }
}

}  // namespace parallel

// Options of DistributedDataParallel.
struct DdpOptions {
  // A bucket takes gradients until it has at least this size, and is then closed. So it can be larger than this, by
  // less than its last gradient.
  std::size_t bucket_bytes = std::size_t{25} << 20;
  // The first bucket is smaller, so that communication starts early in backward.
  std::size_t first_bucket_bytes = std::size_t{1} << 20;
  // Whether full buckets are reduced while backward goes on (kinds.h). Ranks may differ in it. Has no effect with
  // deferred, with a communication hook, or where the optimizer averages (fused_update).
  Overlap overlap = Overlap::automatic;
  // If true, a parameter that a backward does not reach counts as zeros on this rank, and a parameter that no rank
  // reached keeps its gradient (with sharded: gets zeros). If false, such a parameter is an error that names it.
  bool allow_unused = false;
  // Promises that the graph is the same at every step. The graph is learned from the first backward, and every later
  // backward is compared with it. This allows unused parameters at no cost, and parameters whose gradient comes in
  // several parts.
  bool static_graph = false;
  // At every forward in training mode, all ranks take over the buffers of rank 0 (such as BatchNorm's statistics).
  bool broadcast_buffers = true;
  // Parameters and gradients lie back to back, and parameters() returns blocks of them.
  bool flat = false;
  // backward() returns while buckets are still in flight, and finish() waits for them. This is for callers that want to
  // do other work before they wait, such as the stages of a pipeline. Cannot be combined with sharded.
  bool deferred = false;
  // Implies flat. Each rank updates only its share of the parameters, and keeps the optimizer's state only for this
  // share. The parameters exist once for all ranks (docs/sharded.md).
  bool sharded = false;
  // With sharded: the optimizer's step averages the gradients, in the same pass over memory in which it updates the
  // parameters. After backward, the gradients of parameters() are undefined, until average_gradients() makes them. The
  // optimizer must be lockstep::Adam, AdamW or SGD: any other one finds no gradients, which the next backward reports.
  // One step uses the gradients up, so a second one finds none. The step has the bits that it has without this option.
  // Has no effect on one rank, if a parameter is not float32, or with another algorithm than direct. If a rank's
  // gradients had to leave the shared memory (`fused_update` in docs/contracts.md), they are averaged after backward
  // from then on, and parameters() have them.
  bool fused_update = false;
  // The size of a block with flat. libtorch's Adam works on six arrays of this size at a time, which should fit a
  // core's cache. Measured time of a step of libtorch's Adam with 2 MB of L2 cache, 16 x 1024, sharded on 2 ranks: 34
  // ms with 64 KiB, 26 with 128, 25 with 256, 26 with 512, 28 with 1024.
  std::size_t block_bytes = std::size_t{256} << 10;
  // Replaces the all-reduce of each bucket (gradients.h). Cannot be combined with sharded.
  CommHook hook = {};
  // The model's name in error messages; if empty, the name of the module's class. If two models are built in a
  // different order on one rank, this is detected if their names or their parameters differ.
  std::string name = {};
};

// Options of join().
struct JoinOptions {
  // Divide gradients by the number of ranks that still have data, instead of by the number of all ranks.
  bool divide_by_active = false;
};

// Times of the last step on this rank, in seconds.
struct DdpStatistics {
  struct Bucket {
    std::size_t bytes = 0;
    double ready = 0;  // when its last gradient came; all times of a bucket count from the end of forward
    double began = 0;  // start of its communication, which includes waiting for other ranks
    double ended = 0;
  };
  double forward = 0;
  double backward = 0;                  // since the end of forward, so it includes the loss
  double communication = 0;             // summed over the buckets
  double overlapped_communication = 0;  // the part of it during which this rank's backward went on
  // The time after backward in which this rank waited for communication; with deferred, the wait in finish().
  double exposed_communication = 0;
  std::size_t copied_bytes = 0;  // of gradients that were not computed in their places and had to be copied there
  std::size_t kept_gradients =
      0;  // since construction: gradients that were still in use when their places got new ones
  std::vector<Bucket> buckets;
  bool overlaps = false;  // DdpOptions::overlap as it was decided
};

// The guard that no_sync() returns.
class NoSync {
 public:
  explicit NoSync(int& depth) : depth_(&depth) { ++depth; }
  NoSync(NoSync&& other) noexcept : depth_(std::exchange(other.depth_, nullptr)) {}
  NoSync& operator=(NoSync&&) = delete;
  ~NoSync() {
    if (depth_ != nullptr) --*depth_;
  }

 private:
  int* depth_;
};

// The base class of DistributedDataParallel: everything that does not depend on the type of the module.
class DataParallelBase {
 public:
  // The tensors to give to the optimizer: the trained parameters, each once. With flat: blocks of them. With sharded:
  // this rank's blocks.
  std::vector<torch::Tensor> parameters() const;

  // With DdpOptions::deferred: when it returns, the gradients are the mean over all ranks. Without deferred, backward()
  // ensures this itself.
  void finish();

  // Until the guard is destroyed, backward leaves each rank its own gradients, so that they can be accumulated.
  [[nodiscard]] NoSync no_sync();

  // Runs `body`, the loop over this rank's batches. Ranks may have different numbers of batches: ranks that are done
  // take part in the others' collectives with zeros until all are done. At the end all ranks get the weights of a rank
  // that was active to the last.
  void join(const std::function<void()>& body, const JoinOptions& options = {});

  // Collective. Call it after the optimizer's step. With sharded: when it returns, this rank sees what the optimizers
  // of all ranks have updated, and forwards without gradients are not collective until the next backward.
  void sync();

  // With fused_update, after backward and before the optimizer's step: makes the gradients of parameters(), to be read
  // or changed; the step then uses these. Otherwise has no effect. Not collective.
  void average_gradients();

  // Collective. Scales the gradients so that their norm over all parameters is at most `max_norm`. Returns the norm
  // before scaling.
  double clip_grad_norm(double max_norm, double norm_type = 2);

  // Times of the last step.
  const DdpStatistics& statistics() const;
  // The buckets and their contents, as a table.
  std::string layout() const;
  Communicator& communicator();

 protected:
  DataParallelBase(std::shared_ptr<torch::nn::Module> module, Communicator& comm, DdpOptions options);
  ~DataParallelBase();
  DataParallelBase(DataParallelBase&&) noexcept;
  DataParallelBase& operator=(DataParallelBase&&) noexcept;

  // A forward pass, which lasts until this object is destroyed.
  class Forward {
   public:
    explicit Forward(DataParallelBase& model);
    ~Forward();
    Forward(const Forward&) = delete;
    // Must be called for every tensor in the result. With allow_unused, a backward that reaches `output` but no
    // parameter then counts as zeros.
    void watch(const torch::Tensor& output) const;
    // Must be called at the end, if nothing was thrown.
    void succeeded() const;

   private:
    parallel::Reducer& reducer_;
    Clock::time_point began_;
  };

 private:
  std::shared_ptr<torch::nn::Module> module_;
  std::unique_ptr<parallel::Reducer> reducer_;  // after the module, so that it is destroyed first
};

template <typename Module>
class DistributedDataParallel : public DataParallelBase {
 public:
  DistributedDataParallel(std::shared_ptr<Module> module, Communicator& comm, DdpOptions options = {})
      : DataParallelBase(module, comm, std::move(options)), module_(std::move(module)) {}
  // For torch's module holders: `Net net;` after TORCH_MODULE(Net).
  DistributedDataParallel(const torch::nn::ModuleHolder<Module>& holder, Communicator& comm, DdpOptions options = {})
      : DistributedDataParallel(holder.ptr(), comm, std::move(options)) {}
  // A module on the stack, as in `Net net;`, cannot be shared.
  template <typename OnTheStack>
  requires std::derived_from<OnTheStack, torch::nn::Module> DistributedDataParallel(const OnTheStack&,
                                                                                    Communicator& comm, DdpOptions = {})
      : DataParallelBase(nullptr, comm, {}) {
    static_assert(!std::derived_from<OnTheStack, torch::nn::Module>,
                  "DistributedDataParallel shares the module with you, so it must not be on the stack. Write "
                  "`auto net = std::make_shared<Net>();` instead of `Net net;`, or use TORCH_MODULE.");
  }

  // Takes the arguments of the module's forward, and returns its result.
  template <typename... Arguments>
  auto forward(Arguments&&... arguments) {
    const Forward pass(*this);
    auto output = module_->forward(std::forward<Arguments>(arguments)...);
    parallel::for_each_tensor(output, [&](const torch::Tensor& tensor) { pass.watch(tensor); });
    pass.succeeded();
    return output;
  }
  template <typename... Arguments>
  auto operator()(Arguments&&... arguments) {
    return forward(std::forward<Arguments>(arguments)...);
  }

  Module& module() { return *module_; }
  Module* operator->() { return module_.get(); }

 private:
  std::shared_ptr<Module> module_;
};

template <typename Holder>
requires std::derived_from<Holder, torch::nn::ModuleHolder<typename Holder::ContainedType>> DistributedDataParallel(
    const Holder&, Communicator&, DdpOptions = {})
->DistributedDataParallel<typename Holder::ContainedType>;

template <typename OnTheStack>
requires std::derived_from<OnTheStack, torch::nn::Module> DistributedDataParallel(const OnTheStack&, Communicator&,
                                                                                  DdpOptions = {})
->DistributedDataParallel<OnTheStack>;

// One whole training step, the counterpart of naive_data_parallel_step() in gradients.h: zero_grad(), `loss`, backward,
// optimizer. `loss` must call the model through ddp. Returns this rank's loss.
template <typename Optimizer>
torch::Tensor ddp_step(Optimizer& optimizer, const Loss& loss) {
  optimizer.zero_grad();
  torch::Tensor value = loss();
  value.backward();
  optimizer.step();
  return value.detach();
}

}  // namespace lockstep
