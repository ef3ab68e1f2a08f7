// SimpleCNN: a small network for small images.
#pragma once

#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/pimpl.h>

#include <cstdint>
#include <vector>

namespace lockstep::model {

// For each entry of `channels` a 3x3 convolution with padding 1, ReLU and a 2x2 max-pool, which halves the image's
// side; then flatten, Linear to `hidden`, ReLU, Linear to `classes`. Takes inputs of shape [rows, 1, side, side].
//
// Weights are drawn and parameters are named as in FullMLP. Throws UsageError if a size is below 1, if the
// image's side becomes 0 because `channels` has too many entries, or if the weights do not fit in this machine's
// memory.
struct SimpleCNNImpl : torch::nn::SequentialImpl {
  explicit SimpleCNNImpl(const std::vector<std::int64_t>& channels = {32, 64}, std::int64_t hidden = 512,
                         std::int64_t classes = 10, std::int64_t image_side = 28);
};
TORCH_MODULE(SimpleCNN);

}  // namespace lockstep::model
