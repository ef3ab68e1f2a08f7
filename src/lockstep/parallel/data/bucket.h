// A bucket: gradients that are communicated together. It is one piece of memory with elements of one type. Every
// gradient in it is a tensor over its part of this memory, so nothing is packed or unpacked.
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

  std::size_t index() const { return index_; }  // buckets are reduced in the order of their indices on all ranks
  bool is_last() const { return index_ + 1 == buckets_; }
  // The whole bucket as a tensor of one dimension. The gaps between gradients hold zeros.
  const torch::Tensor& flat() const { return flat_; }
  // The gradients in the bucket, and for each of them the index of its parameter in DistributedDataParallel's list of
  // trained parameters.
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
