#include "lockstep/measure/memory_limit.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "lockstep/base/clock.h"
#include "lockstep/base/quantile.h"
#include "lockstep/error.h"
#include "lockstep/measure/formulas.h"
#include "lockstep/rendezvous/meeting.h"
#include "lockstep/transport/patience.h"
#include "lockstep/transport/shm/share.h"
#include "lockstep/world.h"

namespace lockstep::measure {
namespace {

constexpr std::size_t kHeaderBytes = 4096;
constexpr Tag kTag = 65001;
constexpr std::size_t kLine = 128;  // sum_to_all moves multiples of this
constexpr int kWarmup = 5;
constexpr double kStretch = 10e-6;  // seconds between clock readings, which must not affect the result
constexpr int kMostRanks = 256;

std::size_t whole_lines(std::size_t bytes) { return bytes / kLine * kLine; }

}  // namespace

// Lies at the start of the region.
struct MemoryLimit::Header {
  std::atomic<unsigned> arrived;
  std::size_t calls;      // number of calls between two clock readings
  std::size_t stretches;  // number of clock readings
  double seconds[kMostRanks];
};

std::vector<MemoryTask> memory_tasks(std::optional<Op> op, int ranks, Rank root, std::size_t bytes,
                                     std::size_t stride) {
  const auto p = static_cast<std::size_t>(ranks);
  const auto r = static_cast<std::size_t>(root);
  const std::size_t chunk = whole_lines(bytes / p);
  std::vector<MemoryTask> tasks;
  if (!op) {  // p2p: pairs of ranks
    for (std::size_t i = 0; i + 1 < p; i += 2) tasks.push_back({{i * stride}, {(i + 1) * stride}, whole_lines(bytes)});
    return tasks;
  }
  for (std::size_t c = 0; c < p; ++c) {
    // The offset of chunk c of buffer b.
    const auto at = [&](std::size_t b) { return b * stride + c * chunk; };
    const auto all_but = [&](std::size_t b) {
      std::vector<std::size_t> places;
      for (std::size_t i = 0; i < p; ++i)
        if (i != b) places.push_back(at(i));
      return places;
    };
    switch (*op) {
      case Op::all_reduce:
        tasks.push_back({all_but(p), all_but(p), chunk});
        break;
      case Op::reduce:
        tasks.push_back({all_but(p), {at(r)}, chunk});
        break;
      case Op::reduce_scatter:
        tasks.push_back({all_but(p), {at(c)}, chunk});
        break;
      case Op::broadcast:
        tasks.push_back({{at(r)}, all_but(r), chunk});
        break;
      case Op::all_gather:
        tasks.push_back({{at(c)}, all_but(c), chunk});
        break;
      case Op::gather:
        if (c != r) tasks.push_back({{at(c)}, {at(r)}, chunk});
        break;
      case Op::scatter:
        if (c != r) tasks.push_back({{at(r)}, {at(c)}, chunk});
        break;
      case Op::all_to_all:
        for (std::size_t to = 0; to < p; ++to)
          if (to != c) tasks.push_back({{c * stride + to * chunk}, {(p + to) * stride + c * chunk}, chunk});
        break;
      case Op::barrier:
        break;
    }
  }
  return tasks;
}

MemoryLimit::MemoryLimit(World& world, int cores, std::optional<Op> op, Rank root, std::size_t room)
    : world_(world),
      op_(op),
      root_(root),
      workers_(std::min(world.size(), cores)),
      buffers_(op == Op::all_to_all ? 2 * world.size() : world.size()) {
  if (world.size() == 1) problem_ = "a world of one moves nothing";
  if (!world.meeting().all_on_one_host()) problem_ = "the ranks are on several hosts";
  if (world.size() > kMostRanks) problem_ = fmt::format("more than {} ranks", kMostRanks);
  if (op == Op::barrier) problem_ = "a barrier moves nothing";
  if (problem_.empty()) share_region(kHeaderBytes + static_cast<std::size_t>(buffers_) * room);
}

MemoryLimit::~MemoryLimit() = default;

MemoryLimit::Header& MemoryLimit::header() const { return *reinterpret_cast<Header*>(region_->data()); }

// Either all ranks get the region, or none of them measures.
void MemoryLimit::share_region(std::size_t bytes) {
  std::vector<Rank> everyone(static_cast<std::size_t>(world_.size()));
  std::iota(everyone.begin(), everyone.end(), 0);
  try {
    region_ = transport::shm::share_region(world_.meeting(), world_.transport(), everyone, kTag, bytes,
                                           world_.options().shm_dir);
  } catch (const PeerDied&) {
    throw;
  } catch (const Error& error) {
    problem_ = error.what();
    return;
  }
  // Makes sure that all pages exist, in every mapping, before anything is timed.
  if (world_.rank() == 0) std::memset(region_->data(), 0, region_->size());
  world_.meeting().barrier("bench/limit/filled");
  for (std::size_t at = 0; at < region_->size(); at += 4096)
    static_cast<void>(*static_cast<volatile std::byte*>(region_->data() + at));
}

void MemoryLimit::meet() {
  std::atomic<unsigned>& arrived = header().arrived;
  const unsigned all = ++meetings_ * static_cast<unsigned>(workers_);
  arrived.fetch_add(1, std::memory_order_acq_rel);
  const Deadline deadline = Deadline::in(30s);
  for (unsigned spins = 0; arrived.load(std::memory_order_acquire) < all; ++spins) {
    if (spins < 10000) {
      transport::cpu_pause();
      continue;
    }
    ::sched_yield();
    if (deadline.passed()) throw TimedOut("a rank that measures the memory's limit did not come within 30 s");
  }
}

void MemoryLimit::run_share(std::span<const MemoryTask> tasks, std::size_t copy, Store store) {
  std::byte* base = region_->data() + kHeaderBytes + copy * copy_bytes_;
  const auto worker = static_cast<std::size_t>(world_.rank());
  const auto workers = static_cast<std::size_t>(workers_);
  const std::byte* sources[kMostRanks];
  std::byte* targets[kMostRanks];
  for (const MemoryTask& task : tasks) {
    const std::size_t lines = task.bytes / kLine;
    const std::size_t begin = lines * worker / workers * kLine;
    const std::size_t end = lines * (worker + 1) / workers * kLine;
    for (std::size_t i = 0; i < task.sources.size(); ++i) sources[i] = base + task.sources[i] + begin;
    for (std::size_t i = 0; i < task.targets.size(); ++i) targets[i] = base + task.targets[i] + begin;
    sum_to_all(std::span(sources).first(task.sources.size()), std::span(targets).first(task.targets.size()),
               end - begin, store);
  }
}

// The time, in seconds, that the tasks take while all workers run their shares: the median of the slowest worker.
double MemoryLimit::time_of(std::span<const MemoryTask> tasks, Store store, double seconds) {
  const auto timed = [&](std::size_t calls) {
    const auto start = Clock::now();
    for (std::size_t i = 0; i < calls; ++i) {
      run_share(tasks, next_copy_, store);
      next_copy_ = next_copy_ + 1 < copies_ ? next_copy_ + 1 : 0;
    }
    return seconds_since(start) / static_cast<double>(calls);
  };
  timed(kWarmup);
  if (world_.rank() == 0) {
    const double guess = std::max(std::min(timed(2), timed(2)), 1e-9);
    header().calls = static_cast<std::size_t>(std::ceil(kStretch / guess));
    header().stretches =
        std::max<std::size_t>(8, static_cast<std::size_t>(seconds / guess / static_cast<double>(header().calls)));
  }
  meet();
  std::vector<double> samples(header().stretches);
  for (double& sample : samples) sample = timed(header().calls);
  header().seconds[world_.rank()] = median(std::move(samples));
  meet();
  return *std::max_element(header().seconds, header().seconds + workers_);
}

void MemoryLimit::measure(std::size_t bytes, std::size_t stride, std::size_t copies, double seconds) {
  if (!problem_.empty()) return;
  copies_ = copies;
  next_copy_ = 0;
  copy_bytes_ = static_cast<std::size_t>(buffers_) * stride;
  const std::string turn = fmt::format("bench/limit/{}", tries_++);
  world_.meeting().barrier(turn + "/begin");
  if (world_.rank() < workers_) {
    const auto tasks = memory_tasks(op_, world_.size(), root_, bytes, stride);
    double moved = 0;
    bool sums = false;
    for (const MemoryTask& task : tasks) {
      moved += static_cast<double>(task.bytes * (task.sources.size() + task.targets.size()));
      sums = sums || task.sources.size() > 1;
    }
    // For comparison, a copy within as much memory as the op touches: from its first half to its second half.
    const std::size_t half = static_cast<std::size_t>(buffers_) / 2;
    std::vector<MemoryTask> halves;
    for (std::size_t b = 0; b < half; ++b) halves.push_back({{b * stride}, {(half + b) * stride}, whole_lines(bytes)});
    if (moved > 0 && half > 0) {
      std::vector<Store> ways{Store::lines, Store::vectors, Store::non_temporal};
      if (!sums) ways.push_back(Store::string);
      const double each = seconds / static_cast<double>(ways.size() + 1);
      double fastest = std::numeric_limits<double>::max();
      for (const Store way : ways) fastest = std::min(fastest, time_of(tasks, way, each));
      const double copied =
          2 * static_cast<double>(halves[0].bytes * halves.size()) / time_of(halves, Store::non_temporal, each) / 1e9;
      // The tasks consist of whole lines, so they move slightly fewer bytes than the op.
      const double all = memory_bytes(op_, world_.size(), static_cast<double>(bytes));
      Figures& best = best_[bytes];
      best.kernel_gbs = std::max(best.kernel_gbs, moved / fastest / 1e9);
      best.copy_gbs = std::max(best.copy_gbs, copied);
      best.seconds = all / std::max(best.kernel_gbs, best.copy_gbs) / 1e9;
    }
  }
  world_.meeting().barrier(turn + "/end");
}

std::optional<MemoryLimit::Figures> MemoryLimit::at(std::size_t bytes) const {
  const auto found = best_.find(bytes);
  return found == best_.end() ? std::nullopt : std::optional(found->second);
}

}  // namespace lockstep::measure
