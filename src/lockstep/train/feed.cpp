#include "lockstep/train/feed.h"

#include <algorithm>

#include "lockstep/data.h"

namespace lockstep::train {
namespace {

constexpr double kNoise = 0.1;        // noise of the regression data
constexpr double kWrongLabels = 0.1;  // share of wrong labels in the teacher data

data::Dataset flattened(data::Dataset dataset) {
  dataset.images = dataset.images.flatten(1);
  return dataset;
}

}  // namespace

data::Batch sample_of(const TrainingConfig& c, std::int64_t rows) {
  if (c.data == data::DataKind::teacher) return data::teacher(rows, c.model.dim, kWrongLabels);
  if (c.data == data::DataKind::tokens)
    return data::tokens(rows, c.model.transformer.sequence, c.model.transformer.vocabulary);
  if (c.data == data::DataKind::regression) return data::regression(rows, c.model.dim, kNoise);
  if (c.model.kind == model::ModelKind::cnn) return data::images(rows, c.model.image_side, c.model.classes);
  return data::classification(rows, c.model.dim, c.model.outputs);
}

Feed::Feed(const TrainingConfig& c, Rank rank, int ranks)
    : steps_(c.steps), flatten_(c.model.kind == model::ModelKind::mlp) {
  if (!c.has_epochs()) {
    whole_ = data::slice(sample_of(c, c.batch), rank, ranks);
    return;
  }
  const auto read = [&](data::Split split) {
    data::Dataset dataset = data::load(c.data, split, c.data_dir);
    return flatten_ ? flattened(std::move(dataset)) : dataset;
  };
  const data::Dataset train = read(data::Split::train);
  test_ = read(data::Split::test);
  const data::DistributedSampler sampler(train.size(), rank, ranks, {.seed = c.seed, .remainder = c.remainder});
  loader_ = std::make_unique<data::Loader>(data::fetch_from(train), sampler, data::LoaderOptions{.batch = c.batch});
  if (steps_ == 0) steps_ = c.epochs * loader_->steps();
}

data::Batch Feed::next() {
  const std::int64_t step = given_++;
  if (!loader_) return whole_;
  if (step % loader_->steps() == 0) loader_->start_epoch(step / loader_->steps());
  return loader_->next().value();
}

bool Feed::at_end_of_epoch() const { return given_ == steps_ || (loader_ && given_ % loader_->steps() == 0); }

std::vector<data::Batch> cut(const data::Batch& batch, std::int64_t pieces) {
  const auto n = static_cast<int>(std::clamp<std::int64_t>(pieces, 1, std::max<std::int64_t>(1, batch.rows())));
  std::vector<data::Batch> found;
  for (int i = 0; i < n; ++i) {
    const data::Rows rows = data::rows_of(i, n, batch.rows());
    found.push_back({.inputs = batch.inputs.slice(0, rows.begin, rows.end),
                     .targets = batch.targets.slice(0, rows.begin, rows.end),
                     .whole = batch.whole});
  }
  return found;
}

}  // namespace lockstep::train
