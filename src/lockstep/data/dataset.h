// MNIST and Fashion-MNIST, from their IDX files.
//
// The files have the names of the originals, with or without .gz. They are looked for in this order:
//   1. the folder that is given: FOLDER/NAME, then FOLDER itself, and nowhere else;
//   2. $LOCKSTEP_DATA/NAME;
//   3. data/NAME under the working folder, where `./dev data mnist` puts MNIST;
//   4. for fashion-mnist, /usr/share/datasets/fashion-mnist, where Debian's package dataset-fashion-mnist puts it.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <filesystem>
#include <string>

namespace lockstep::data {

enum class Split { train, test };

struct Dataset {
  torch::Tensor images;  // float [n, 1, 28, 28], normalised: the training images have mean 0 and standard deviation 1
  torch::Tensor labels;  // int64 [n], 0 to 9
  std::int64_t size() const { return labels.size(0); }
};

// `name` is "mnist" or "fashion-mnist". Throws UsageError, which says what to do, if the name is another one, or if a
// file is missing, is damaged, or does not match the other one (images and labels).
Dataset load(const std::string& name, Split split, const std::filesystem::path& folder = {});

}  // namespace lockstep::data
