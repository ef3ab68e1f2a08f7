// The engine of DistributedDataParallel: watches gradients become ready, and reduces their buckets while backward goes
// on.
//
//   hook of a parameter ─> its gradient lies in its bucket ─> bucket full? ─> all-reduce, in the order of the buckets
//   end of backward ─> what has no gradient is unused ─> the last bucket ─> wait for all
//
// Invariants:
//  1. Buckets are reduced in index order on all ranks, whatever the order in which they became full.
//  2. All but the last bucket are reduced on the communication thread. The last one has nothing to overlap with, and is
//     reduced by the thread that ran backward: that saves the hand-over. With deferred it is like the others.
//  3. Whether a backward reduces is decided when its first gradient comes, never earlier.
#pragma once

#include <torch/nn/module.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/clock.h"
#include "lockstep/comm/communicator.h"
#include "lockstep/parallel/data/autograd.h"
#include "lockstep/parallel/data/flat.h"
#include "lockstep/parallel/data/gradients.h"
#include "lockstep/parallel/data/options.h"
#include "lockstep/parallel/data/parameters.h"

namespace lockstep::parallel {

// Seconds, of the last step on this rank.
struct Statistics {
  struct Bucket {
    std::size_t bytes = 0;
    double ready = 0;  // since the end of forward: its last gradient came
    double began = 0;  // its communication; waiting for other ranks is part of it
    double ended = 0;
  };
  double forward = 0;
  double backward = 0;               // from the end of forward, so the loss is in there
  double communication = 0;          // the sum over the buckets
  double exposed_communication = 0;  // the wait after this rank's own backward; with deferred, that in finish()
  std::vector<Bucket> buckets;
};

// See DistributedDataParallel::no_sync.
class NoSync {
 public:
  explicit NoSync(int& depth) : depth_(&depth) { ++depth; }
  NoSync(NoSync&& other) noexcept : depth_(std::exchange(other.depth_, nullptr)) {}
  NoSync& operator=(NoSync&&) = delete;
  ~NoSync() {
    if (depth_ != nullptr) --*depth_;
  }

 private:
  int* depth_;
};

// The contract is DistributedDataParallel's.
class Reducer {
 public:
  Reducer(torch::nn::Module& module, Communicator& comm, DdpOptions options);
  Reducer(const Reducer&) = delete;

  // The forward lasts until the object goes.
  class Forward {
   public:
    explicit Forward(Reducer& reducer) : reducer_(reducer), began_(Clock::now()) {}
    ~Forward();
    Forward(const Forward&) = delete;

   private:
    Reducer& reducer_;
    Clock::time_point began_;
  };
  Forward begin_forward();
  // What it gave. With allow_unused, a backward that comes here and reaches no parameter counts as zeros.
  void watch(const torch::Tensor& output);

  std::vector<torch::Tensor> optimized() const;
  // With deferred: waits for what the last backward began. Nothing to do is fine.
  void finish();
  NoSync no_sync() { return NoSync(no_sync_); }
  void join(const std::function<void()>& body, const JoinOptions& options);
  void sync();
  double clip_grad_norm(double max_norm, double norm_type);
  const Statistics& statistics() const { return statistics_; }
  std::string layout() const { return gradients_.layout().table(items_of(tensors_.trained)); }
  Communicator& communicator() { return comm_; }

 private:
  // What an active rank is about to do, as the ranks that have joined must know (join.cpp).
  enum class Event : std::uint8_t { none, buffers, backward };

  void share_buffers();
  LayoutOptions layout_options() const;
  void check_usage();
  void check_registered();
  void output_reached();

  void before_accumulation(std::size_t parameter);
  void begin_accumulation();
  void after_accumulation(std::size_t parameter);
  void begin_backward();
  void ask_for_end();
  void begin_buckets();
  void end_of_backward();
  void finish_since(Clock::time_point end_of_backward);
  void mark_ready(std::size_t parameter);
  void find_missing();
  void settle_missing();
  void learn_graph();
  void reduce_full_buckets();
  void reduce(std::size_t bucket, bool now);
  void wait_for_buckets();
  void share_used();
  void rebuild();
  void finish_sharded();
  [[noreturn]] void fail(const std::string& what, const std::string& hint);

  Event announce(Event mine);
  void stand_in();

  const DdpOptions options_;
  const std::string name_;  // for errors
  Communicator comm_;       // its own: nobody else's collectives come between
  torch::nn::Module& module_;
  const ModelTensors tensors_;
  Registered registered_;
  Gradients gradients_;
  std::optional<FlatParameters> flat_;

  // The backward under way.
  bool in_backward_ = false;
  bool unfinished_ = false;           // deferred: it ended, and its buckets are under way
  std::vector<bool> ready_;           // by parameter
  std::vector<int> seen_;             // by parameter: how often its hook came (static graph)
  std::vector<std::size_t> pending_;  // by bucket: gradients that have not come
  std::size_t next_ = 0;              // the bucket to reduce next
  struct Flight {
    Work work;
    Work::Times times;  // of what ran on this thread
  };
  std::vector<Flight> flights_;  // by bucket
  struct Missing {
    std::size_t parameter;
    torch::Tensor old;  // its gradient before, if it had one
    bool in_place;
  };
  std::vector<Missing> missing_;

  // From step to step.
  bool end_asked_for_ = false;
  std::uint32_t steps_ = 0;  // forwards that train; collectives carry the number
  int no_sync_ = 0;
  std::vector<std::uint8_t> used_;  // by parameter, since the last reduction; then on any rank
  std::vector<std::size_t> order_;  // in which gradients came, until the buckets are rebuilt
  bool rebuilt_ = false;
  std::optional<std::vector<int>> expected_;  // static graph: what seen_ will be at the end
  std::vector<std::uint8_t> graph_used_;      // static graph: used_ over all ranks
  bool accumulating_ = false;                 // flat: in a backward of any kind
  bool stale_ = false;             // sharded: what is in the buckets is not to be added to, except what is fresh
  bool reduced_ = false;           // sharded: there was a reduction
  bool reduced_and_kept_ = false;  // and nobody has used or zeroed what it gave
  std::vector<bool> fresh_;        // sharded, by parameter: overwritten since
  bool unsynced_ = false;          // sharded: parameters may have been updated since the last barrier

  std::optional<JoinOptions> joining_;
  std::vector<Rank> active_;  // the ranks that took part in the last event

  Clock::time_point forward_end_{};
  Statistics statistics_;
  const std::shared_ptr<Reducer*> self_ = std::make_shared<Reducer*>(this);  // for outputs, which may outlive it
  GradientHooks hooks_{GradientHooks::Purpose::average};  // last, so first to go: they call this object
};

}  // namespace lockstep::parallel
