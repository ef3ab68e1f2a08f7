#include "lockstep/data.h"

#include "lockstep/data/prefetch.h"

#include <fmt/format.h>
#include <algorithm>
#include <cstddef>
#include <cstring>
#include <utility>

#include "lockstep/error.h"

namespace lockstep::data {
namespace {

// Copies with memcpy, because torch's index_select would start a team of threads for each thread that calls it.
torch::Tensor rows_of_tensor(const torch::Tensor& from, std::span<const std::int64_t> indices) {
  std::vector<std::int64_t> shape = from.sizes().vec();
  shape[0] = static_cast<std::int64_t>(indices.size());
  torch::Tensor rows = torch::empty(shape, from.options());
  const std::size_t row_bytes = from.size(0) == 0 ? 0 : from.nbytes() / static_cast<std::size_t>(from.size(0));
  const auto* source = static_cast<const std::byte*>(from.data_ptr());
  auto* target = static_cast<std::byte*>(rows.data_ptr());
  for (const std::int64_t index : indices) {
    if (index < 0 || index >= from.size(0))
      throw UsageError(fmt::format("sample {} of a data set of {}", index, from.size(0)),
                       "a sampler of the data set's size");
    std::memcpy(target, source + static_cast<std::size_t>(index) * row_bytes, row_bytes);
    target += row_bytes;
  }
  return rows;
}

}  // namespace

Fetch fetch_from(const Dataset& dataset) {
  return [images = dataset.images.contiguous(),
          labels = dataset.labels.contiguous()](std::span<const std::int64_t> indices) {
    return Batch{.inputs = rows_of_tensor(images, indices), .targets = rows_of_tensor(labels, indices)};
  };
}

Loader::~Loader() = default;

Loader::Loader(Fetch fetch, const DistributedSampler& sampler, const LoaderOptions& options)
    : fetch_(std::move(fetch)), sampler_(sampler), options_(options), steps_(sampler.steps(options.batch)) {}

void Loader::start_epoch(std::int64_t epoch) {
  ahead_.reset();  // ends its thread before anything changes that the thread uses
  sampler_.set_epoch(epoch);
  indices_ = sampler_.indices();
  step_ = 0;
  started_ = true;
  if (options_.prefetch) ahead_ = std::make_unique<Prefetch<Batch>>([this] { return make(); });
}

std::optional<Batch> Loader::next() {
  if (!started_) start_epoch(0);
  return ahead_ ? ahead_->next() : make();
}

std::optional<Batch> Loader::make() {
  if (step_ == steps_) return {};
  const Rows rows = sampler_.rows_at(step_, options_.batch);
  Batch batch =
      fetch_(std::span(indices_).subspan(static_cast<std::size_t>(rows.begin), static_cast<std::size_t>(rows.count())));
  batch.whole = sampler_.whole_at(step_, options_.batch);
  // The samples that repeat others are a rank's last ones.
  batch.padding = std::max<std::int64_t>(0, rows.end - (sampler_.size() - sampler_.padding()));
  ++step_;
  return batch;
}

}  // namespace lockstep::data
