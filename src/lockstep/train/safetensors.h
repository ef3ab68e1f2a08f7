// Weights on disk, in the safetensors format: 8 bytes with the header's length, a JSON header that says where each
// tensor lies, then the tensors. Nothing in such a file is ever executed.
//
//   | u64 n | {"0.weight": {"dtype": "F32", "shape": [128, 128], "data_offsets": [0, 65536]}, ...} | bytes ... |
//
// Numbers are little-endian, and so is every machine that this runs on.
#pragma once

#include <torch/nn/module.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::train {

using NamedTensors = std::vector<std::pair<std::string, torch::Tensor>>;
using Metadata = std::map<std::string, std::string>;

struct Weights {
  NamedTensors tensors;  // in the order of the file
  Metadata metadata;
};

// All or nothing: who reads `path` finds the old file or the whole new one, whenever the machine stops. Throws
// SystemError.
void save_tensors(const std::string& path, const NamedTensors& tensors, const Metadata& metadata = {});

// Throws UsageError that says what is wrong with the file. Nothing outside it is ever read. Tensors take no more memory
// than the file has bytes; its header may have 8 MiB, and takes some 30 times that while it is read.
Weights load_tensors(const std::string& path);

// Parameters and buffers, under their names.
void save_weights(const std::string& path, const torch::nn::Module& module, const Metadata& metadata = {});

// Into the module's own tensors. The file must have all of them with their types and shapes, and no others: else a
// UsageError names the first that differs, and the module is as it was.
void load_weights(const std::string& path, torch::nn::Module& module);

}  // namespace lockstep::train
