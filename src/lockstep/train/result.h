// What a training run gives: rank 0's figures for all ranks, and the document that `lockstep train --json` prints.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/train/config.h"

namespace lockstep::train {

// Seconds of a step on one rank. What a wait after backward took is not part of backward.
struct Phases {
  double forward = 0;
  double backward = 0;
  double communication = 0;          // all of it, also what ran beside backward
  double exposed_communication = 0;  // the wait after this rank's own backward, stragglers included
  double optimizer = 0;
  double bubble = 0;  // of a pipeline: nothing to do. Not part of communication there.
};

// How one rank spent its steps: parts of 1.
struct Shares {
  double compute = 0;        // forward, backward, optimizer
  double communication = 0;  // waiting for what is on its way; without a pipeline, for stragglers too
  double bubble = 0;         // the rest
};

// Of the last steps of a pipeline. A step here is without averaging and optimizer.
struct PipelineResult {
  std::string schedule;
  int all_stages = 0;                                  // virtual ones included
  int messages = 0;                                    // a step, in one pipeline
  std::vector<pipeline::Times> times;                  // seconds, by stage, as measured; B is I + W
  double bubble_predicted = 0, seconds_predicted = 0;  // from these times, or from the emulated ones
  double bubble_measured = 0, seconds_measured = 0;    // idle time over makespan, messages and all
  std::vector<int> peak_activations;                   // a rank each
};

struct Result {
  TrainingConfig config;
  std::string transport;
  std::int64_t parameters = 0;
  std::size_t gradient_bytes = 0;
  std::vector<double> losses;  // a step each: the mean over all samples of all ranks
  // Over the steps after the warm-up, on the slowest rank.
  double step_p50 = 0, step_p99 = 0;  // seconds
  // Medians over the same steps, then the mean over ranks.
  Phases phases;
  double seconds = 0;                   // the whole loop, with the reading of data and the tests of accuracy
  std::vector<double> accuracies;       // after each epoch, where there is a test set
  std::vector<std::string> digests;     // of the weights, a rank each
  std::vector<std::size_t> peak_bytes;  // most memory resident, a rank each
  std::vector<std::size_t> pss_bytes;   // --report-memory: between backward and optimizer, a rank each
  std::vector<Shares> shares;           // a rank each
  std::optional<PipelineResult> pipeline;
  bool digests_agree() const;       // those of the ranks that have the same parameters
  double overhead_percent() const;  // exposed communication's share of a step
};

nlohmann::json document(const Result& result);

// The p-th part (0 to 1) of the values, sorted; 0 when there are none.
double quantile(std::vector<double> values, double p);

}  // namespace lockstep::train
