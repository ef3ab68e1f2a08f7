// The data sets that have files, and where their files are looked for. Needs no libtorch, so that
// `lockstep doctor` can use it, too.
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/kinds.h"

namespace lockstep::data {

struct Source {
  DataKind kind;
  std::string package_folder;  // where a package of the system puts it; may be empty
  std::string get;             // the command that fetches it
  std::string repair;          // the command that fetches it again
  float mean, deviation;       // of the training images, whose pixels go from 0 to 1

  std::string name() const { return name_of(kind); }
};

std::span<const Source> sources();

// The folders in which the files are looked for, in this order. `folder` is the one that the user gave; it may be
// empty.
std::vector<std::filesystem::path> places(const Source& source, const std::filesystem::path& folder);

// The path of the file, or of the file with .gz after its name, in the first of these folders that has it.
std::optional<std::filesystem::path> find_file(const Source& source, const std::string& file,
                                               const std::filesystem::path& folder);

}  // namespace lockstep::data
