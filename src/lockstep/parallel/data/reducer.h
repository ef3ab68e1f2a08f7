// The engine of DistributedDataParallel: it notices when gradients become ready, and reduces their buckets while
// backward continues.
//
//   hook of a parameter ─> its gradient lies in its bucket ─> bucket full? ─> all-reduce, in the order of the buckets
//   end of backward ─> parameters without a gradient are unused ─> the last bucket ─> wait for all
//
// Invariants:
//  1. Buckets are reduced in the order of their indices on all ranks, whatever the order in which they became full.
//  2. All buckets but the last are reduced on the communication thread. There is no computation left to overlap with
//     the last bucket, so the thread that ran backward reduces it itself, which saves the hand-over. With deferred, the
//     last bucket is treated like the others.
//  3. Whether a backward reduces gradients is decided when it reaches this model, never earlier: a no_sync() around the
//     forward alone has no effect on it.
#pragma once

#include <torch/nn/module.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/clock.h"
#include "lockstep/communicator.h"
#include "lockstep/data_parallel.h"
#include "lockstep/parallel/data/autograd.h"
#include "lockstep/parallel/data/flat.h"
#include "lockstep/parallel/data/gradients.h"
#include "lockstep/parallel/data/parameters.h"

namespace lockstep::parallel {

// The contract is that of DistributedDataParallel (data_parallel.h).
class Reducer {
 public:
  Reducer(torch::nn::Module& module, Communicator& comm, DdpOptions options);
  Reducer(const Reducer&) = delete;

  // Enclose a forward pass, which began after begin_forward().
  void begin_forward();
  void end_forward(Clock::time_point began);
  // Must be called for every tensor in the result of a forward. With allow_unused, a backward that reaches `output` but
  // no parameter then counts as zeros.
  void watch(const torch::Tensor& output);

  std::vector<torch::Tensor> optimized() const;
  // With deferred: waits for the buckets of the last backward. Returns at once if there are none.
  void finish();
  NoSync no_sync() { return NoSync(no_sync_); }
  void join(const std::function<void()>& body, const JoinOptions& options);
  void sync();
  double clip_grad_norm(double max_norm, double norm_type);
  const DdpStatistics& statistics() const { return statistics_; }
  std::string layout() const { return gradients_.layout().table(items_of(tensors_.trained)); }
  Communicator& communicator() { return comm_; }

 private:
  // What an active rank is about to do. The ranks that have joined must know it (join.cpp).
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
  const std::string name_;  // for error messages
  Communicator comm_;       // its own, so that nobody else's collectives come between
  torch::nn::Module& module_;
  const ModelTensors tensors_;
  Registered registered_;
  Gradients gradients_;
  std::optional<FlatParameters> flat_;

  // State of the backward in progress.
  bool in_backward_ = false;
  bool unfinished_ = false;           // deferred: backward has ended, but its buckets are still in flight
  std::vector<bool> ready_;           // by parameter: its gradient is in its bucket
  std::vector<int> seen_;             // by parameter: how often its hook ran (static graph)
  std::vector<std::size_t> pending_;  // by bucket: number of gradients that have not come yet
  std::size_t next_ = 0;              // the bucket that is reduced next
  struct BucketInFlight {
    Work work;
    Work::Times times;  // of a reduction that ran on this thread
  };
  std::vector<BucketInFlight> flights_;  // by bucket
  struct Missing {
    std::size_t parameter;
    torch::Tensor old;  // its gradient before this backward, if it had one
    bool in_place;      // whether `old` lies in the bucket
  };
  std::vector<Missing> missing_;

  // State that is kept from step to step.
  bool end_asked_for_ = false;
  std::uint32_t steps_ = 0;  // number of forwards that train; collectives carry it
  int no_sync_ = 0;
  std::vector<std::uint8_t> used_;  // by parameter: used since the last reduction; after share_used(), by any rank
  std::vector<std::size_t> order_;  // the order in which gradients came; recorded until the buckets are rebuilt
  bool rebuilt_ = false;
  std::optional<std::vector<int>> expected_;  // static graph: the value that seen_ must have at the end
  std::vector<std::uint8_t> graph_used_;      // static graph: used_ over all ranks
  bool accumulating_ = false;                 // flat: a backward is in progress, whether it reduces or not
  bool stale_ = false;             // sharded: gradients must not be added to what is in the buckets, unless it is fresh
  bool reduced_ = false;           // sharded: there was a reduction
  bool reduced_and_kept_ = false;  // sharded: the last reduction's gradients were neither used nor zeroed
  std::vector<bool> fresh_;        // sharded, by parameter: overwritten since the last reduction
  bool unsynced_ = false;          // sharded: parameters may have been updated since the last barrier

  std::optional<JoinOptions> joining_;
  std::vector<Rank> active_;  // join: the ranks that took part in the last event; otherwise all ranks

  Clock::time_point forward_end_{};
  DdpStatistics statistics_;
  const std::shared_ptr<Reducer*> self_ = std::make_shared<Reducer*>(this);  // for outputs, which may outlive this
  GradientHooks hooks_{GradientHooks::Purpose::average};  // last, so it is destroyed first: hooks call this object
};

}  // namespace lockstep::parallel
