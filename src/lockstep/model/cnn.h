// SimpleCNN: a small network for small images.
#pragma once

#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/pimpl.h>

#include <cstdint>
#include <vector>

namespace lockstep::model {

// For each count of channels a 3x3 convolution with padding 1, ReLU and a 2x2 max-pool, which halves the image's side;
// then flatten, Linear to `hidden`, ReLU, Linear to `classes`. Takes [rows, 1, side, side].
//
// Draws and names as FullMLP. A size below 1 is a UsageError, and so are channels that use up the image.
struct SimpleCNNImpl : torch::nn::SequentialImpl {
  explicit SimpleCNNImpl(const std::vector<std::int64_t>& channels = {32, 64}, std::int64_t hidden = 512,
                         std::int64_t classes = 10, std::int64_t image_side = 28);
};
TORCH_MODULE(SimpleCNN);

}  // namespace lockstep::model
