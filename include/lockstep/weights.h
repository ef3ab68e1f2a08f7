// Weights on disk, in the safetensors format: 8 bytes with the length of the header, a JSON header that says where each
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

namespace lockstep::weights {

using NamedTensors = std::vector<std::pair<std::string, torch::Tensor>>;
using Metadata = std::map<std::string, std::string>;

struct Weights {
  NamedTensors tensors;  // in the order of the file
  Metadata metadata;
};

// Writes all or nothing: a reader of `path` finds the old file or the whole new one, even if the machine stops at any
// moment. Throws SystemError.
void save_tensors(const std::string& path, const NamedTensors& tensors, const Metadata& metadata = {});

// The same, one tensor at a time, for callers that do not have all tensors at once: `fetch` is called once for each of
// `specs`, in the order of the file. This is the order of `specs`, but wide types come first.
struct TensorSpec {
  std::string name;
  at::ScalarType type = at::kFloat;
  std::vector<std::int64_t> shape;
};
void save_tensors(const std::string& path, const std::vector<TensorSpec>& specs,
                  const std::function<torch::Tensor(std::size_t spec)>& fetch, const Metadata& metadata = {});

// Selects tensors of a file by their names.
using Choice = std::function<bool(const std::string& name)>;

// Throws a UsageError that says what is wrong with the file. Nothing outside the file is ever read. Tensors take no
// more memory than the file has bytes. The header may have up to 8 MiB, and takes about 30 times as much memory while
// it is read. With `wanted`, only the selected tensors are read, and the others are only checked.
Weights load_tensors(const std::string& path, const Choice& wanted = {});

// Parameters and buffers, under their names.
NamedTensors tensors_of(const torch::nn::Module& module);
void save_weights(const std::string& path, const torch::nn::Module& module, const Metadata& metadata = {});

// Loads a file into the module's own tensors. The file must have all of them, with their types and shapes, and no
// others. Otherwise a UsageError names the first tensor that differs, and the module is unchanged. `elsewhere` selects
// tensors that the file may have in addition, because other ranks have them; they are not read.
void load_weights(const std::string& path, torch::nn::Module& module, const Choice& elsewhere = {});

}  // namespace lockstep::weights
