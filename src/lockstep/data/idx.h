// Reads IDX, the file format of MNIST and similar data sets: 0, 0, a type, the number of dimensions, the sizes as
// 32-bit big-endian numbers, and then the values; the last dimension varies fastest.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace lockstep::data {

struct Idx {
  std::vector<std::int64_t> shape;
  std::vector<std::uint8_t> values;
};

// Reads a file of unsigned bytes with the given number of dimensions, raw or .gz. Throws UsageError, which names the
// file and ends with `hint`, if the file is not IDX, has another type or other dimensions, or is too short or too long.
// Memory is allocated only for bytes that are there, and not because the file claims to have them.
Idx read_idx(const std::filesystem::path& path, int dimensions, const std::string& hint = "another copy of the file");

}  // namespace lockstep::data
