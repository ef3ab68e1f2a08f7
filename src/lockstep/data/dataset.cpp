#include "lockstep/data.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <algorithm>
#include <array>
#include <vector>

#include "lockstep/data/idx.h"
#include "lockstep/data/sources.h"
#include "lockstep/error.h"

namespace lockstep::data {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kSide = 28;
constexpr std::int64_t kClasses = 10;

const Source& source_of(DataKind kind) {
  std::vector<std::string> names;
  for (const Source& source : sources()) {
    if (source.kind == kind) return source;
    names.push_back(source.name());
  }
  throw UsageError(fmt::format("{} data has no files", name_of(kind)),
                   fmt::format("one of {}", fmt::join(names, ", ")));
}

fs::path find(const Source& source, const std::string& file, const fs::path& folder) {
  if (const auto path = find_file(source, file, folder)) return *path;
  std::vector<std::string> names;
  for (const fs::path& place : places(source, folder)) names.push_back(place.string());
  throw UsageError(fmt::format("{}: {} (or .gz) is not in {}", source.name(), file, fmt::join(names, ", ")),
                   folder.empty() ? source.get + ", or LOCKSTEP_DATA=FOLDER with FOLDER/" + source.name()
                                  : source.get + " and no folder, or a folder that has the file");
}

torch::Tensor normalised(const Idx& idx, const Source& source) {
  const std::int64_t count = idx.shape[0];
  torch::Tensor images = torch::empty({count, 1, kSide, kSide});
  // A pixel has one of 256 values, so a table is enough. It needs no temporary of the data's size.
  std::array<float, 256> table{};
  for (std::size_t value = 0; value < table.size(); ++value)
    table[value] = (static_cast<float>(value) / 255.0F - source.mean) / source.deviation;
  std::transform(idx.values.begin(), idx.values.end(), images.data_ptr<float>(),
                 [&table](std::uint8_t value) { return table[value]; });
  return images;
}

}  // namespace

Dataset load(DataKind kind, Split split, const fs::path& folder) {
  const Source& source = source_of(kind);
  const std::string prefix = split == Split::train ? "train" : "t10k";
  const fs::path image_file = find(source, prefix + "-images-idx3-ubyte", folder);
  const fs::path label_file = find(source, prefix + "-labels-idx1-ubyte", folder);
  const auto fail = [&source](const fs::path& file, const std::string& what) {
    throw UsageError(fmt::format("{} {}", file.string(), what), source.repair);
  };

  const Idx labels = read_idx(label_file, 1, source.repair);
  const auto odd =
      std::find_if(labels.values.begin(), labels.values.end(), [](auto label) { return label >= kClasses; });
  if (odd != labels.values.end())
    fail(label_file, fmt::format("has the label {} at place {}, but labels go from 0 to {}", *odd,
                                 odd - labels.values.begin(), kClasses - 1));

  const Idx images = read_idx(image_file, 3, source.repair);
  if (images.shape[1] != kSide || images.shape[2] != kSide)
    fail(image_file, fmt::format("has images of {}x{}, not {}x{}", images.shape[1], images.shape[2], kSide, kSide));
  if (images.shape[0] == 0) fail(image_file, "has no images");
  if (images.shape[0] != labels.shape[0])
    fail(image_file,
         fmt::format("has {} images, but {} has {} labels", images.shape[0], label_file.string(), labels.shape[0]));

  Dataset dataset{.images = normalised(images, source), .labels = torch::empty({labels.shape[0]}, torch::kInt64)};
  std::copy(labels.values.begin(), labels.values.end(), dataset.labels.data_ptr<std::int64_t>());
  return dataset;
}

}  // namespace lockstep::data
