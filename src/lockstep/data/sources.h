// The data sets that can be trained on, and where their files are looked for. Without libtorch, so that `lockstep
// doctor` can look, too.
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace lockstep::data {

struct Source {
  std::string name;
  std::string package_folder;  // where the system has it; may be empty
  std::string get;             // the command that fetches it
  std::string repair;          // the command that fetches it again
  float mean, deviation;       // of the training images, whose pixels go from 0 to 1
};

std::span<const Source> sources();

// The folders where its files are looked for, in this order. `folder`: what the user said; may be empty.
std::vector<std::filesystem::path> places(const Source& source, const std::filesystem::path& folder);

// The first of these places that has the file, or the file with .gz behind its name.
std::optional<std::filesystem::path> find_file(const Source& source, const std::string& file,
                                               const std::filesystem::path& folder);

}  // namespace lockstep::data
