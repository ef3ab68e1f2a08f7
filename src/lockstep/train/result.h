// The result of a training run: rank 0's figures for all ranks, and the document that `lockstep train --json` prints.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/train/config.h"

namespace lockstep::train {

// Seconds of the parts of a step. All but `communication` add up to the whole step.
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

// Figures of the last steps of a pipeline. A step here does not include averaging and optimizer.
struct PipelineResult {
  std::string schedule;
  int all_stages = 0;                                  // including virtual ones
  int messages = 0;                                    // per step and pipeline
  std::vector<pipeline::Times> times;                  // measured seconds, by stage; B is I + W
  double bubble_predicted = 0, seconds_predicted = 0;  // computed from these times, or from the emulated ones
  double bubble_measured = 0, seconds_measured = 0;    // idle time over makespan, including the time of messages
  std::vector<int> peak_activations;                   // one per rank
};

struct Result {
  TrainingConfig config;
  std::string transport;
  std::int64_t parameters = 0;
  std::size_t gradient_bytes = 0;
  std::int64_t steps = 0;
  // The mean loss over all samples of all ranks, of every `losses_every`-th step and of the last step.
  std::vector<double> losses;
  std::int64_t losses_every = 1;  // larger than 1 only in runs of many thousand steps (StepLog)
  // Over the steps after the warm-up, on the slowest rank.
  double step_p50 = 0, step_p99 = 0;  // seconds
  // Means over the typical ones of these steps (see typical() in step_log.h), then over the ranks. In a pipeline, means
  // over the last steps (see utilisation.h).
  Phases phases;
  double seconds = 0;                   // the whole loop, including reading data and testing accuracy
  std::vector<double> accuracies;       // after each epoch, if there is a test set
  std::vector<std::string> digests;     // digests of the weights, one per rank
  std::vector<std::size_t> peak_bytes;  // largest resident size, one per rank
  std::vector<std::size_t> pss_bytes;   // --report-memory: between backward and optimizer, one per rank
  std::vector<Shares> shares;           // one per rank
  std::optional<PipelineResult> pipeline;
  bool digests_agree() const;       // whether ranks that have the same parameters have the same digests
  double overhead_percent() const;  // the share of exposed communication in a step
};

nlohmann::json document(const Result& result);

// Returns a sentence that says what is wrong with the course of the losses: one is not finite or much larger than the
// first, or they rose again and stayed there. Returns nothing otherwise. `losses_every` is explained in Result.
std::optional<std::string> trouble_with(const std::vector<double>& losses, std::int64_t losses_every = 1);

// The p-quantile of the values, with p from 0 to 1; 0 if there are no values.
double quantile(std::vector<double> values, double p);

}  // namespace lockstep::train
