// A bucket: gradients that travel together. One piece of memory, of one type; every gradient is a tensor over its part
// of it, so nothing is packed or unpacked.
#pragma once

#include <torch/types.h>

#include <vector>

namespace lockstep {

class GradientBucket {
 public:
  GradientBucket(std::size_t index, std::size_t buckets, torch::Tensor flat, std::vector<torch::Tensor> gradients,
                 std::vector<std::size_t> parameters)
      : index_(index),
        buckets_(buckets),
        flat_(std::move(flat)),
        gradients_(std::move(gradients)),
        parameters_(std::move(parameters)) {}

  std::size_t index() const { return index_; }  // buckets are reduced in this order on all ranks
  bool is_last() const { return index_ + 1 == buckets_; }
  // All of it, in one dimension; the gaps between gradients are zeros.
  const torch::Tensor& flat() const { return flat_; }
  // The gradients in it, and which of DistributedDataParallel's trained parameters they belong to.
  const std::vector<torch::Tensor>& gradients() const { return gradients_; }
  const std::vector<std::size_t>& parameters() const { return parameters_; }
  std::size_t bytes() const { return flat_.nbytes(); }

 private:
  std::size_t index_;
  std::size_t buckets_;
  torch::Tensor flat_;
  std::vector<torch::Tensor> gradients_;
  std::vector<std::size_t> parameters_;
};

}  // namespace lockstep
