// Weights on disk, in the safetensors format: 8 bytes with the header's length, a JSON header that says where each
// tensor lies, then the tensors. Nothing in such a file is ever executed.
//
//   | u64 n | {"0.weight": {"dtype": "F32", "shape": [128, 128], "data_offsets": [0, 65536]}, ...} | bytes ... |
//
// Numbers are little-endian, and so is every machine that this runs on.
#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <functional>
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

// The same, one tensor at a time, for who does not have them all at once: `fetch` is asked for each of `specs` once, in
// the order of the file: that of `specs`, wide types first.
struct TensorSpec {
  std::string name;
  at::ScalarType type = at::kFloat;
  std::vector<std::int64_t> shape;
};
void save_tensors(const std::string& path, const std::vector<TensorSpec>& specs,
                  const std::function<torch::Tensor(std::size_t spec)>& fetch, const Metadata& metadata = {});

// Which tensors of a file are meant.
using Choice = std::function<bool(const std::string& name)>;

// Throws UsageError that says what is wrong with the file. Nothing outside it is ever read. Tensors take no more memory
// than the file has bytes; its header may have 8 MiB, and takes some 30 times that while it is read. With `wanted`,
// only those are read, and the others are checked.
Weights load_tensors(const std::string& path, const Choice& wanted = {});

// Parameters and buffers, under their names.
NamedTensors tensors_of(const torch::nn::Module& module);
void save_weights(const std::string& path, const torch::nn::Module& module, const Metadata& metadata = {});

// Into the module's own tensors. The file must have all of them with their types and shapes, and no others: else a
// UsageError names the first that differs, and the module is as it was. `elsewhere`: tensors that the file may have
// besides, because other ranks have them; they are not read.
void load_weights(const std::string& path, torch::nn::Module& module, const Choice& elsewhere = {});

}  // namespace lockstep::train
