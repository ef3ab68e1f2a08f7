// The batches of a run, one a step, whatever the data is.
#pragma once

#include <memory>
#include <optional>

#include "lockstep/data/batch.h"
#include "lockstep/data/loader.h"
#include "lockstep/train/config.h"

namespace lockstep::train {

// Synthetic data is one batch, drawn from torch's default generator as it stands, whole on every rank, and used at
// every step. A data set is read from its files, and dealt to the ranks anew in each epoch.
class Feed {
 public:
  // Throws UsageError when files are missing or damaged.
  Feed(const TrainingConfig& config, Rank rank, int ranks);

  std::int64_t steps() const { return steps_; }
  data::Batch next();
  // What next() gave was the last of its epoch, or of the run.
  bool at_end_of_epoch() const;
  // None with synthetic data.
  const std::optional<data::Dataset>& test_set() const { return test_; }

 private:
  data::Batch whole_;  // this rank's rows, of synthetic data
  std::unique_ptr<data::Loader> loader_;
  std::optional<data::Dataset> test_;
  std::int64_t steps_ = 0;
  std::int64_t given_ = 0;
  bool flatten_ = false;  // images become rows of numbers
};

// `rows` samples of the kind that the data has, drawn from torch's default generator; their values mean nothing.
data::Batch sample_of(const TrainingConfig& config, std::int64_t rows);

// A batch in at most `pieces` microbatches of about the same size, at least one; none is empty unless the batch is.
std::vector<data::Batch> cut(const data::Batch& batch, std::int64_t pieces);

}  // namespace lockstep::train
