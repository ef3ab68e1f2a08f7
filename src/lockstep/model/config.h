// The configuration of a model. It consists of plain values and does not need libtorch, because flags and reports use
// it, too.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::model {

struct ModelConfig {
  std::string name = "mlp";  // "mlp" or "cnn"
  // mlp: `depth` times Linear(dim, dim) and ReLU, then Linear(dim, outputs)
  std::int64_t dim = 128, depth = 16, outputs = 2;
  // cnn: one convolution for each entry of `channels`, then Linear to `hidden`, then Linear to `classes`
  std::vector<std::int64_t> channels{32, 64};
  std::int64_t hidden = 512, classes = 10, image_side = 28;

  // The number of modules with parameters. A pipeline can have at most this number of stages.
  std::int64_t layers() const { return name == "mlp" ? depth + 1 : static_cast<std::int64_t>(channels.size()) + 2; }
};

}  // namespace lockstep::model
