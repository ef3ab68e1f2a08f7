// Flat parameters: all parameters lie back to back in memory, in the order of their gradients' buckets. The optimizer
// gets a few blocks of this memory instead of many small tensors.
//
//   parameters   | b2 | w2              | b1 | w1                              |   the module's tensors, re-pointed
//   blocks       |      block 0      |      block 1      |      block 2       |   what the optimizer updates
//   gradients    | b2 | w2              | b1 | w1                              |   the buckets
//
// This pays because libtorch's optimizers make several passes over each tensor: for a block that fits the cache, all
// passes but the first cost no memory traffic. Optimizers that treat every element alike compute the same numbers with
// and without flat parameters. There is one difference: a parameter that no rank used has a gradient of zeros here, not
// none, so weight decay and momentum still change it.
//
// Sharded: all ranks share one such memory, and a rank's blocks are its chunk of every bucket. If the model fuses, the
// optimizer averages a block's gradient itself, from the buckets of all ranks (optim/unaveraged.h).
#pragma once

#include <torch/types.h>

#include <array>
#include <memory>
#include <vector>

#include "lockstep/communicator.h"
#include "lockstep/data_parallel.h"
#include "lockstep/optim/unaveraged.h"
#include "lockstep/parallel/data/gradients.h"

namespace lockstep::parallel {

class FlatParameters {
 public:
  // Collective. Moves the parameters' data into the flat memory with set_data(), so that the module's own members point
  // there too. When it returns, every rank has rank 0's values. `parameters` and `gradients` must outlive this object.
  FlatParameters(const std::vector<Named>& parameters, Gradients& gradients, const DdpOptions& options,
                 Communicator& comm, bool fuses);
  ~FlatParameters();
  FlatParameters(const FlatParameters&) = delete;

  const std::vector<torch::Tensor>& blocks() const { return blocks_; }

  // Throws a UsageError with the name of a parameter whose data is no longer in the flat memory, for example after
  // module.to().
  void check_places() const;
  // Must be called before gradients are accumulated. A block whose gradient was set to none gets it back; if `zero`, it
  // is filled with zeros. A block whose gradient was replaced gets it back, filled with the values of the replacement.
  void restore_gradients(bool zero);
  // True if the gradients of all blocks were set to none.
  bool dropped() const;
  // True if a block or a gradient was changed since remember(), by the optimizer or by anybody else. Only changes that
  // increment a tensor's version counter, or replace a gradient, are detected. libtorch's SGD changes parameters
  // without incrementing it, but zero_grad() does increment it.
  bool touched() const { return versions() != versions_; }
  void remember() { versions_ = versions(); }
  // The same check by value, for optimizers that change parameters without incrementing a version counter. It remembers
  // at most one value per block, chosen where the gradient is not zero, because an optimizer's step changes such a
  // value.
  void remember_values();
  // True if values were remembered, and none of them has changed since then.
  bool kept_values() const { return !values_.empty() && !values_changed(); }
  // True if an optimizer has made its step since remember_values(): it has changed a block, or dropped its gradient. A
  // step that changes nothing (with a learning rate of 0, for example) may not be seen before zero_grad(). After
  // leave_to_optimizer(true): true if all gradients were used, whatever they changed.
  bool stepped() const;
  // True if all gradients of this rank's blocks are zero.
  bool zeroed() const;

  // For a model that fuses (DistributedModel::fuses), when the gradients of all ranks lie in their places. If `leave`,
  // it is left to the optimizer to average those of this rank's blocks, which become undefined.
  void leave_to_optimizer(bool leave);
  // What leave_to_optimizer() was told last; false after average().
  bool leaves() const { return left_; }
  // Gives the blocks their gradients, if an optimizer has not used them yet.
  void average();
  // True if gradients were left to the optimizer, which has not used all of them.
  bool is_left() const;

 private:
  void make_blocks(const DdpOptions& options, const Communicator& comm);
  void make_unaveraged(const Communicator& comm);
  void place(std::size_t block);
  void follow(std::size_t bucket);
  void let_go(std::size_t block);
  std::vector<std::uint64_t> versions() const;
  bool values_changed() const;

  const std::vector<Named>& parameters_;
  Gradients& gradients_;
  std::shared_ptr<Bytes> memory_;
  std::vector<torch::Tensor> places_;  // [parameter] where its data belongs
  std::vector<torch::Tensor> blocks_;
  std::vector<torch::Tensor> block_gradients_;
  struct Origin {
    std::size_t bucket;
    std::size_t begin;  // in elements
  };
  std::vector<Origin> origins_;  // where a block's gradients lie
  std::vector<std::uint64_t> versions_;
  struct Value {
    const std::byte* at;
    std::size_t size;
    std::array<std::byte, 16> was;
  };
  std::vector<Value> values_;                                   // at most one per block
  std::vector<std::uint32_t> block_versions_;                   // at remember_values()
  std::vector<std::unique_ptr<optim::Unaveraged>> unaveraged_;  // one per block; none if the model does not fuse
  bool left_ = false;  // the last gradients were left to the optimizer, and average() was not called
};

}  // namespace lockstep::parallel
