// The training loop of `lockstep train` as a class: it takes a configuration and returns a result. Programs can include
// this header without libtorch.
//
//   using namespace lockstep::train;
//   const TrainingConfig config = checked({.strategy = StrategyKind::ddp, .ranks = 2});
//   Training training(config, comm.rank(), comm.size());  // makes the model and the data of this rank
//   const Result result = training.run(comm);             // collective
//
// With the same seed, the same numbers are drawn as in PyTorch, in the same order: the weights, then the inputs, then
// the targets of the whole batch. Every rank draws all of them and takes its rows. In a pipeline, every rank draws all
// weights and keeps those of its stages.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/buffer.h"
#include "lockstep/kinds.h"
#include "lockstep/options.h"
#include "lockstep/schedule.h"
#include "lockstep/types.h"

namespace lockstep {
class Communicator;
}

namespace lockstep::train {

class Progress;

// --- the configuration ---

// The settings of a pipeline: the schedule, the cut, and whether its computation is real or emulated.
struct PipelineConfig {
  std::string schedule = {};  // name of a schedule, or a CSV file; empty: 1f1b
  // Number of ranks in one pipeline; with virtual stages, the pipeline has more stages than this. 0: all ranks, or the
  // number of lines of a CSV file.
  int stages = 0;
  int microbatches = 0;  // 0: 8, or the number of samples per pipeline if that is smaller
  std::optional<int> virtual_stages = {};
  std::optional<pipeline::Balance> balance = {};  // what is made equal among stages; none: count
  bool recompute = false;
  // Seconds that a rank takes for F, I and W of one microbatch, in all of its stages together. The rank then sleeps
  // for that time instead of computing.
  std::optional<pipeline::Times> emulate = {};
  // With balance `time`: seconds of each module, as measured by rank 0.
  std::vector<double> module_seconds = {};
};

// A model and its sizes in a few words.
std::string describe(const model::ModelConfig& model);

// The settings of a training run.
struct TrainingConfig {
  static constexpr double kUnset = -1;

  StrategyKind strategy = StrategyKind::ddp;
  int ranks = 0;  // 0: the default, which is 2, or 1 for a strategy of one process
  model::ModelConfig model = {};

  data::DataKind data = data::DataKind::synthetic;
  std::string data_dir = {};  // folder of mnist and fashion-mnist; empty: where they usually are
  data::Remainder remainder = data::Remainder::pad;
  std::int64_t batch = 0;           // samples per step on all ranks; 0: 32, or from batch_per_rank
  std::int64_t batch_per_rank = 0;  // samples per step and rank (in a pipeline: per pipeline), instead of batch
  std::int64_t steps = 0;           // 0: 50, or as many as the epochs have
  std::int64_t epochs = 0;
  std::int64_t warmup = -1;     // steps at the start that are not timed; -1: 5, but at most half of all steps
  std::int64_t accumulate = 1;  // microbatches per step, whose gradients are added up

  OptimizerKind optimizer = OptimizerKind::adam;
  double lr = kUnset;  // kUnset: default_lr()
  std::uint64_t seed = 42;

  std::optional<double> bucket_mb = {};  // size of ddp's buckets in MiB; none: ddp's default
  bool flat = false;                     // ddp: DdpOptions::flat
  bool fused_update = false;             // sharded: DdpOptions::fused_update
  Overlap overlap = Overlap::automatic;  // ddp: DdpOptions::overlap
  PipelineConfig pipeline = {};
  // Seconds that the backward of each layer waits besides computing, as if for a device. The core is free meanwhile.
  double layer_wait = 0;
  TransportKind transport = TransportKind::automatic;  // automatic: what LOCKSTEP_TRANSPORT says
  Algorithm algorithm = Algorithm::automatic;          // automatic: what LOCKSTEP_ALGORITHM says
  bool flush_denormals = false;                        // treats tiny numbers as zero, which is faster and changes bits

  std::string load = {}, save = {};  // paths of safetensors files
  std::string trace = {};            // file for what every rank did when; empty: what LOCKSTEP_TRACE says
  bool report_memory = false;        // measure each rank's memory in every step from the third on

  // The number of steps that are not timed in a run of `steps_made` steps. At least one step is timed.
  std::int64_t untimed(std::int64_t steps_made) const;
  bool has_epochs() const;  // the data is finite, and is used again in every epoch
  // The number of copies of the model, each of which has its share of the batch. Ranks [r * stages, (r + 1) * stages)
  // are pipeline r.
  int replicas() const { return strategy == StrategyKind::pipeline ? ranks / pipeline.stages : ranks; }
  std::string describe_model() const { return describe(model); }
};

// The default learning rate: 0.001. For Adam, AdamW and RMSprop on an MLP whose layers are wider than 128 it is 0.001 *
// (128 / width)^1.5. With 0.001, a network of width 1024 amplifies rounding errors until the losses of two strategies
// have nothing in common; with 0.001 * 128 / width, its loss still jumped tenfold within 50 steps. A transformer has
// norms and needs no such care: with 0.001 and widths from 64 to 1024, the losses of `single` and `ddp` differed by
// less than 1e-6 in 40 steps.
double default_lr(const TrainingConfig& config);

// Returns the settings with a value in place of everything that was left open. Throws UsageError if the values are
// inconsistent. Errors that only libtorch or the files can show are found later: a model of impossible size, missing
// data, weights of another model.
TrainingConfig checked(TrainingConfig config);

// --- the result, which is complete on rank 0 only ---

// Seconds of the parts of a step. All but `communication` and `overlapped` add up to the whole step.
struct Phases {
  double forward = 0;
  double backward = 0;               // without the wait after it
  double communication = 0;          // all of it, including what ran at the same time as backward
  double overlapped = 0;             // the part of `communication` before the end of this rank's own backward
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

// When the gradients of one backward travelled, on rank 0. All times are in seconds on one clock, which starts at the
// end of forward, or when the first gradient is ready if each gradient travels by itself.
struct BackwardRecord {
  struct Travel {
    std::string name;  // of the parameter; empty for a bucket
    std::size_t bytes = 0;
    double ready = 0, began = 0, ended = 0;
  };
  std::vector<Travel> travels = {};  // one per parameter, or one per bucket
  double end = 0;                    // end of this rank's own backward
  std::string table = {};            // the same as text, with a bar for each parameter; empty with buckets
  bool overlaps = true;              // communication has a thread of its own
};

// Figures of the last steps of a pipeline. A step here does not include averaging and optimizer.
struct PipelineResult {
  std::string schedule;
  int all_stages = 0;                                  // including virtual ones
  int messages = 0;                                    // per step and pipeline
  std::vector<pipeline::Times> times;                  // measured seconds, by stage; B is I + W
  double bubble_predicted = 0, seconds_predicted = 0;  // computed from these times, or from the emulated ones
  double bubble_measured = 0;   // share of the makespan in which ranks do not compute; messages count as idle time
  double seconds_measured = 0;  // the makespan
  std::vector<int> peak_activations;  // one per rank
};

struct Result {
  TrainingConfig config;
  std::string transport;
  std::int64_t parameters = 0;
  std::size_t gradient_bytes = 0;
  std::int64_t steps = 0;
  // The mean loss over all samples of all ranks, of every `losses_every`-th step and of the last step.
  std::vector<double> losses;
  std::int64_t losses_every = 1;  // larger than 1 only in runs of many thousand steps
  // Over the steps after the warm-up, on the slowest rank.
  double step_p50 = 0, step_p99 = 0;  // seconds
  // Means over the typical ones of these steps (the half of them that is nearest to the median), then over the ranks.
  // In a pipeline, means over the last steps.
  Phases phases;
  double seconds = 0;                   // the whole loop, including reading data and testing accuracy
  std::vector<double> accuracies;       // after each epoch, if there is a test set
  std::vector<std::string> digests;     // digests of the weights, one per rank
  std::vector<std::size_t> peak_bytes;  // largest resident size, one per rank
  std::vector<std::size_t> pss_bytes;   // with report_memory: between backward and optimizer, one per rank
  std::vector<Shares> shares;           // one per rank
  std::optional<PipelineResult> pipeline;
  std::optional<BackwardRecord> backward;  // hooks: a typical one of the last steps; ddp and sharded: the last one
  bool digests_agree() const;              // whether ranks that have the same parameters have the same digests
  double overhead_percent() const;         // the share of exposed communication in a step
};

// --- the loop ---

class Training {
 public:
  // Seeds torch's default generator. Ranks that are threads share this generator, so they take turns. Throws UsageError
  // for problems that only the model and the files can show. `config` must be a result of checked().
  Training(const TrainingConfig& config, Rank rank, int ranks);
  ~Training();
  Training(Training&&) noexcept;
  Training& operator=(Training&&) noexcept;

  // Collective; may be called once. Only rank 0's result is complete. The second form is for Lockstep itself: it
  // shows how far the run is.
  Result run(Communicator& comm);
  Result run(Communicator& comm, Progress& progress);
  // Collective, instead of run(): the trainings make their steps in turns, so that a slow moment of the machine hits
  // all of them. They must have the same number of steps. Returns one result for each.
  static std::vector<Result> run_in_turns(std::span<Training> trainings, Communicator& comm);

  // The size of the whole model: elements of its parameters, and bytes of their gradients.
  std::int64_t parameters() const;
  std::size_t gradient_bytes() const;
  std::int64_t steps() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// How the ranks of this configuration communicate: what it says itself, and for the rest what the environment says.
//
//   rank_main(body, transport_options(config), comm_options(config));
transport::Options transport_options(const TrainingConfig& config);
comm::Options comm_options(const TrainingConfig& config);

// Throws UsageError if the weights, gradients and optimizer states of `local_ranks` ranks do not fit into the memory
// that is free on this host now.
void check_host_memory(const TrainingConfig& config, int local_ranks);

// Sets how many threads torch may use, how it treats denormals, and that glibc keeps freed memory for the next step.
// Must be called before anything else, on the thread that trains, because threads that torch starts later take over the
// mode of this thread.
void prepare_process(const TrainingConfig& config, int local_ranks);

}  // namespace lockstep::train
