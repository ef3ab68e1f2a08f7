// What a training run gives: rank 0's figures for all ranks, and the document that `lockstep train --json` prints.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/train/config.h"

namespace lockstep::train {

// Seconds of the parts of a step. All but `communication` add up to the step.
struct Phases {
  double forward = 0;
  double backward = 0;               // without the wait after it
  double communication = 0;          // all of it, including what ran at the same time as backward
  double exposed_communication = 0;  // waiting after this rank's own backward, for messages and for stragglers
  double optimizer = 0;
  double bubble = 0;  // only in a pipeline: waiting for work that another stage has not finished
  double other = 0;   // the rest: clearing gradients, the bookkeeping of hooks and buckets, the measuring itself

  double step() const { return forward + backward + exposed_communication + optimizer + bubble + other; }
};

// How one rank spent its steps: parts that add up to 1.
struct Shares {
  double compute = 0;        // forward, backward, optimizer
  double communication = 0;  // exposed communication
  double bubble = 0;         // only in a pipeline
  double other = 0;
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
  std::int64_t steps = 0;
  std::vector<double>
      losses;  // of every `losses_every`-th step and of the last: the mean over all samples of all ranks
  std::int64_t losses_every = 1;  // more than 1 only in runs of many thousand steps (StepLog)
  // Over the steps after the warm-up, on the slowest rank.
  double step_p50 = 0, step_p99 = 0;  // seconds
  // Means over typical steps among these (see typical() in step_log.h), then over the ranks.
  Phases phases;
  double seconds = 0;                   // the whole loop, with the reading of data and the tests of accuracy
  std::vector<double> accuracies;       // after each epoch, where there is a test set
  std::vector<std::string> digests;     // of the weights, a rank each
  std::vector<std::size_t> peak_bytes;  // most memory resident, a rank each
  std::vector<std::size_t> pss_bytes;   // --report-memory: between backward and optimizer, a rank each
  std::vector<Shares> shares;           // a rank each
  std::optional<PipelineResult> pipeline;
  bool digests_agree() const;       // those of the ranks that have the same parameters
  double overhead_percent() const;  // the share of exposed communication in a step
};

nlohmann::json document(const Result& result);

// What is wrong with the course of the losses, as a sentence: one is not finite, or they rose again and stayed there.
// Nothing otherwise. `losses_every`: see Result.
std::optional<std::string> trouble_with(const std::vector<double>& losses, std::int64_t losses_every = 1);

// The p-th part (0 to 1) of the values, sorted; 0 when there are none.
double quantile(std::vector<double> values, double p);

}  // namespace lockstep::train
