// IDX, the format of MNIST and its kin: 0, 0, a type, the number of dimensions, the sizes as 32-bit big-endian numbers,
// and then the values, the last dimension running fastest.
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

// Reads a file of unsigned bytes with so many dimensions, raw or .gz. All that is wrong with it is a UsageError that
// names the file and ends with `hint`: not IDX, another type, other dimensions, too short, too long. Memory is taken
// for bytes that are there, never because the file says so.
Idx read_idx(const std::filesystem::path& path, int dimensions, const std::string& hint = "another copy of the file");

}  // namespace lockstep::data
