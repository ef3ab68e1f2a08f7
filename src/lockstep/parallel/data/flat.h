// Flat parameters: they lie back to back in the order of their gradients' buckets, and the optimizer gets a few blocks
// of that memory instead of many small tensors.
//
//   parameters   | b2 | w2              | b1 | w1                              |   the module's tensors, re-pointed
//   blocks       |      block 0      |      block 1      |      block 2       |   what the optimizer updates
//   gradients    | b2 | w2              | b1 | w1                              |   the buckets
//
// It pays because libtorch's optimizers make several passes over each tensor: over a block that fits the cache, all but
// the first cost no memory traffic. Optimizers that treat every element alike give the same numbers.
// One difference: a parameter that no rank used has a gradient of zeros here, not none, so weight decay and momentum
// still move it.
//
// Sharded: the memory is one for all ranks, and a rank's blocks are its chunk of every bucket.
#pragma once

#include <torch/types.h>

#include <array>
#include <memory>
#include <vector>

#include "lockstep/comm/communicator.h"
#include "lockstep/parallel/data/gradients.h"
#include "lockstep/parallel/data/options.h"

namespace lockstep::parallel {

class FlatParameters {
 public:
  // Collective. Moves the parameters' data (set_data), so the module's own members follow. When it returns, every rank
  // has rank 0's values. Both must outlive it.
  FlatParameters(const std::vector<Named>& parameters, Gradients& gradients, const DdpOptions& options,
                 Communicator& comm);

  const std::vector<torch::Tensor>& blocks() const { return blocks_; }

  // Throws, with its name, when a parameter's data is elsewhere: after module.to(), say.
  void check_places() const;
  // Before gradients are accumulated: a block whose gradient was set to none gets it back, as zeros; one whose gradient
  // was replaced, with what it holds now.
  void restore_gradients();
  // True when the optimizer, or anybody, has changed a block or a gradient since remember(). What counts versions is
  // seen, and libtorch's SGD changes parameters without; but zero_grad() does count.
  bool touched() const { return versions() != versions_; }
  void remember() { versions_ = versions(); }
  // The same by values, for those who change them without a version: a few that have a gradient, which a step changes.
  void remember_values();
  bool values_changed() const;  // true where no value had a gradient: nobody can tell
  // True when all gradients of this rank's blocks are zero.
  bool zeroed() const;

 private:
  void make_blocks(const DdpOptions& options, const Communicator& comm);
  std::vector<std::uint64_t> versions() const;

  const std::vector<Named>& parameters_;
  Gradients& gradients_;
  std::shared_ptr<Bytes> memory_;
  std::vector<torch::Tensor> places_;  // of the parameters
  std::vector<torch::Tensor> blocks_;
  std::vector<torch::Tensor> block_gradients_;
  std::vector<std::uint64_t> versions_;
  struct Value {
    const std::byte* at;
    std::size_t size;
    std::array<std::byte, 16> was;
  };
  std::vector<Value> values_;  // one of each block, at most
};

}  // namespace lockstep::parallel
