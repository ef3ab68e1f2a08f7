#include "lockstep/data/sources.h"

#include <array>

#include "lockstep/base/environment.h"

namespace lockstep::data {

namespace fs = std::filesystem;

std::span<const Source> sources() {
  static const std::array<Source, 2> kSources{{
      {DataKind::mnist, "", "./dev data mnist", "./dev data mnist", 0.1307F, 0.3081F},
      {DataKind::fashion_mnist, "/usr/share/datasets/fashion-mnist", "apt-get install dataset-fashion-mnist",
       "apt-get install --reinstall dataset-fashion-mnist", 0.2860F, 0.3530F},
  }};
  return kSources;
}

std::vector<fs::path> places(const Source& source, const fs::path& folder) {
  if (!folder.empty()) return {folder / source.name(), folder};
  std::vector<fs::path> found;
  if (const auto data = env("LOCKSTEP_DATA")) found.push_back(fs::path(*data) / source.name());
  found.push_back(fs::path("data") / source.name());
  if (!source.package_folder.empty()) found.emplace_back(source.package_folder);
  return found;
}

std::optional<fs::path> find_file(const Source& source, const std::string& file, const fs::path& folder) {
  for (const fs::path& place : places(source, folder))
    for (const char* ending : {"", ".gz"}) {
      fs::path path = place / (file + ending);
      std::error_code ignored;
      if (fs::exists(path, ignored)) return path;
    }
  return std::nullopt;
}

}  // namespace lockstep::data
