// The batches of a run, one per step, for all kinds of data.
#pragma once

#include <memory>
#include <optional>

#include "lockstep/data.h"
#include "lockstep/training.h"

namespace lockstep::train {

// Synthetic data is one batch that is used at every step. Every rank draws the whole batch from torch's default
// generator, from its current state on. A data set is read from its files, and is distributed to the ranks anew in each
// epoch.
class Feed {
 public:
  // Throws UsageError if files are missing or damaged.
  Feed(const TrainingConfig& config, Rank rank, int ranks);

  std::int64_t steps() const { return steps_; }
  data::Batch next();
  // True if the batch that next() returned was the last of its epoch or of the run.
  bool at_end_of_epoch() const;
  // Empty with synthetic data.
  const std::optional<data::Dataset>& test_set() const { return test_; }

 private:
  data::Batch whole_;  // synthetic data: this rank's rows
  std::unique_ptr<data::Loader> loader_;
  std::optional<data::Dataset> test_;
  std::int64_t steps_ = 0;
  std::int64_t given_ = 0;
  bool flatten_ = false;  // whether images are flattened to rows of numbers
};

// Draws `rows` random samples of the same kind as the data, from torch's default generator.
data::Batch sample_of(const TrainingConfig& config, std::int64_t rows);

// Cuts a batch into at most `pieces` microbatches of about the same size, but at least one. None is empty unless the
// batch is.
std::vector<data::Batch> cut(const data::Batch& batch, std::int64_t pieces);

}  // namespace lockstep::train
