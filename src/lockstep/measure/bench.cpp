#include "lockstep/measure/bench.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>

#include "lockstep/base/clock.h"
#include "lockstep/base/quantile.h"
#include "lockstep/error.h"
#include "lockstep/measure/cores.h"
#include "lockstep/measure/formulas.h"
#include "lockstep/measure/machine.h"
#include "lockstep/measure/memory_limit.h"
#include "lockstep/measure/socket_limit.h"
#include "lockstep/measure/timed_operation.h"
#include "lockstep/measure/timing.h"
#include "lockstep/measure/worlds.h"
#include "lockstep/rendezvous/meeting.h"
#include "lockstep/world.h"

namespace lockstep::measure {
namespace {

using nlohmann::json;

constexpr std::size_t kPage = 4096;
constexpr int kLimitRounds = 5;
// Below this size a call is nothing but synchronisation, and a limit of bytes says nothing.
constexpr std::size_t kLeastForLimit = 4096;
constexpr std::size_t kLeastForSockets = std::size_t{8} << 20;  // what fits the caches may be faster than a stream

// How the buffers of one size lie in a rank's memory.
struct Place {
  std::size_t bytes = 0;
  std::size_t stride = 0;
  std::size_t copies = 1;
};

// With `rotate`, a buffer is used again only after other buffers of twice the last-level cache's size, over all ranks.
Place place_of(const BenchConfig& config, int ranks, std::size_t bytes) {
  Place place{bytes, (std::max(bytes, std::size_t{1}) + kPage - 1) / kPage * kPage, 1};
  if (!config.rotate) return place;
  const long cache = std::max(::sysconf(_SC_LEVEL3_CACHE_SIZE), ::sysconf(_SC_LEVEL2_CACHE_SIZE));
  const std::size_t cold = 2 * static_cast<std::size_t>(std::max(cache, 32L << 20)) / static_cast<std::size_t>(ranks);
  place.copies = std::max<std::size_t>(2, cold / place.stride + 1);
  return place;
}

// A rank's memory of one kind in one world. For all_to_all it has two halves.
struct Block {
  std::shared_ptr<Bytes> arena;
  std::vector<std::byte> own;
  Bytes bytes;

  Block(Communicator& comm, bool in_arena, std::size_t size) {
    if (in_arena) {
      arena = comm.allocate_bytes(size);
      bytes = *arena;
    } else {
      own.resize(size + kPage);
      void* aligned = own.data();
      std::size_t space = own.size();
      bytes = Bytes(static_cast<std::byte*>(std::align(kPage, size, aligned, space)), size);
    }
    std::memset(bytes.data(), 0, bytes.size());
  }
};

// One row of the result.
struct Row {
  const BenchConfig* config = nullptr;  // the configuration with this row's type and reduction
  Communicator* comm = nullptr;
  std::optional<TransportKind> transport;  // none in a world of one
  Algorithm algorithm = Algorithm::automatic;
  bool arena = false;
  Place place;
  std::unique_ptr<TimedOperation> operation;
  Pace pace;
  Times times;
  std::uint64_t wrong = 0;
  Traffic traffic;      // traffic of one call, on the rank that sent most
  Traffic all_traffic;  // traffic of one call, on all ranks together
};

json sent(const Traffic& traffic) { return {{"messages", traffic.messages}, {"bytes", traffic.bytes}}; }

class Bench {
 public:
  Bench(World& world, const BenchConfig& config, const Observer& observer)
      : world_(world),
        config_(config),
        observer_(observer),
        cores_(cores_of_all_ranks(world.meeting())),
        worlds_(world, config.transports) {
    for (const DType dtype : config.dtypes)
      for (const ReduceOp reduce_op : config.reduce_ops) {
        if (config.reduces() && reduce_op == ReduceOp::mean && is_integer(dtype)) continue;  // integers have no mean
        BenchConfig& variant = variants_.emplace_back(config);
        variant.dtype = dtype;
        variant.reduce_op = reduce_op;
        for (const Place& place : places_for(variant)) room_ = std::max(room_, place.stride * place.copies);
      }
    for (auto& entry : worlds_.entries()) add_rows_of(entry);
    if (rows_.empty()) throw UsageError("nothing to measure: direct needs shared memory", "the transport shm");
    // All rows of one size, then those of the next size.
    std::stable_sort(rows_.begin(), rows_.end(),
                     [](const Row& a, const Row& b) { return a.place.bytes < b.place.bytes; });
    if (!config.limits) return;
    const auto over = [&](TransportKind transport) {
      return std::any_of(rows_.begin(), rows_.end(), [&](const Row& row) { return row.transport == transport; });
    };
    if (over(TransportKind::shm)) memory_ = std::make_unique<MemoryLimit>(world, cores_, config.op, config.root, room_);
    if (over(TransportKind::tcp)) sockets_ = std::make_unique<SocketLimit>(world, cores_);
  }

  // Measures one size after the other. The rows of one size take turns, round by round, so that they can be compared.
  json run() {
    for (Row& row : rows_) check(row);
    const bool tells = world_.rank() == 0;
    json plan = tells ? document() : json();
    if (tells) {
      for (const Row& row : rows_) plan["results"].push_back(head_of(row));
      observer_.begin(plan);
    }
    json results = json::array();
    const auto began = Clock::now();
    for (std::size_t first = 0, end = 0; first < rows_.size(); first = end) {
      end = first;
      while (end < rows_.size() && rows_[end].place.bytes == rows_[first].place.bytes) ++end;
      const std::span<Row> rows(rows_.data() + first, end - first);
      if (tells && first > 0)
        observer_.waiting(rows[0].place.bytes, seconds_since(began) / static_cast<double>(first) *
                                                   static_cast<double>(rows_.size() - first));
      time_rows(rows);
      if (!tells) continue;
      for (Row& row : rows) observer_.row(results.emplace_back(result_of(row)));
    }
    if (!tells) return {};
    json whole = document();
    whole["results"] = std::move(results);
    return whole;
  }

 private:
  std::vector<Place> places_for(const BenchConfig& variant) const {
    std::set<std::size_t> sizes;
    for (const std::size_t bytes : variant.sizes)
      sizes.insert(count_for(variant, world_.size(), bytes) * bytes_per_element(variant.dtype));
    std::vector<Place> places;
    for (const std::size_t bytes : sizes) places.push_back(place_of(variant, world_.size(), bytes));
    return places;
  }

  void time_rows(std::span<Row> rows) {
    for (int round = 0; round < config_.rounds; ++round) {
      for (Row& row : rows) time(row, round);
      if (round < kLimitRounds) measure_limits(rows[0].place);
    }
  }

  void add_rows_of(Worlds::Entry& entry) {
    const bool shares = entry.transport == TransportKind::shm;
    std::vector<BufferKind> kinds = config_.buffers;
    if (!shares) kinds = {BufferKind::private_memory};  // there is no arena, so allocate() would give plain memory
    if (kinds.empty()) kinds = {BufferKind::arena};
    for (const BufferKind kind : kinds) {
      const std::size_t halves = config_.op == Op::all_to_all ? 2 : 1;
      const Block& block =
          *blocks_.emplace_back(std::make_unique<Block>(*entry.comm, kind == BufferKind::arena, halves * room_));
      for (const BenchConfig& variant : variants_)
        for (const Algorithm algorithm : config_.algorithms) {
          if (algorithm == Algorithm::direct && entry.transport == TransportKind::tcp) continue;
          for (const Place& place : places_for(variant)) {
            Row& row = rows_.emplace_back();
            row.config = &variant;
            row.comm = entry.comm.get();
            row.transport = entry.transport;
            row.algorithm = algorithm;
            row.arena = row.comm->in_arena(block.bytes.data());
            row.place = place;
            row.operation = std::make_unique<TimedOperation>(*row.comm, variant, algorithm, place.bytes,
                                                             Memory{block.bytes, place.stride, place.copies});
          }
        }
    }
  }

  void check(Row& row) {
    const Traffic before = row.comm->traffic();
    std::size_t wrong = 0;
    if (config_.check)
      wrong = row.operation->wrong();
    else
      row.operation->call();
    const Traffic after = row.comm->traffic();
    row.wrong = sum_on_rank_0(*row.comm, wrong);
    row.traffic.messages = max_on_rank_0(*row.comm, after.messages - before.messages);
    row.traffic.bytes = max_on_rank_0(*row.comm, after.bytes - before.bytes);
    row.all_traffic.messages = sum_on_rank_0(*row.comm, after.messages - before.messages);
    row.all_traffic.bytes = sum_on_rank_0(*row.comm, after.bytes - before.bytes);
  }

  void time(Row& row, int round) {
    const auto call = [&operation = *row.operation] { operation.call(); };
    if (round == 0) {
      // Uses every copy once, because the first touch of a page, also of a peer's page, must not be part of any figure.
      for (std::size_t i = 0; i < row.place.copies; ++i) call();
      row.pace = find_pace(*row.comm, call, config_.round_seconds, static_cast<std::size_t>(config_.iterations));
    }
    time_loop(*row.comm, call, row.pace, config_.warmup, row.times);
  }

  void measure_limits(const Place& place) {
    if (place.bytes < kLeastForLimit) return;
    if (memory_) memory_->measure(place.bytes, place.stride, place.copies, config_.round_seconds);
    if (sockets_ && place.bytes >= kLeastForSockets) sockets_->measure(place.bytes);
  }

  // The shortest time, in seconds, that the machine allows for a row; none if that says nothing.
  std::optional<double> limit_of(const Row& row) const {
    const auto bytes = static_cast<double>(row.place.bytes);
    if (row.transport == TransportKind::shm && memory_)
      if (const auto figures = memory_->at(row.place.bytes)) return figures->seconds;
    if (row.transport == TransportKind::tcp && sockets_)
      if (const auto gbs = sockets_->at(row.place.bytes); gbs && goes_both_ways(config_.op))
        return wire_bytes(config_.op, world_.size(), bytes) / (sockets_->workers() * *gbs * 1e9);
    return std::nullopt;
  }

  // The result of a row without its times.
  json head_of(const Row& row) const {
    const Algorithm ran = config_.op && row.algorithm == Algorithm::automatic
                              ? row.comm->choice(*config_.op, row.operation->count(), row.config->dtype)
                              : row.algorithm;
    return {{"op", config_.name()},
            {"engine", "native"},
            {"transport", row.comm->transport()},
            {"algorithm", config_.op ? name_of(ran) : "none"},
            {"asked_for", config_.op ? name_of(row.algorithm) : "none"},
            {"ranks", world_.size()},
            {"bytes", row.place.bytes},
            {"count", row.operation->count()},
            {"dtype", name_of(row.config->dtype)},
            {"redop", name_of(row.config->reduce_op)},
            {"root", config_.root},
            {"buffer", name_of(row.arena ? BufferKind::arena : BufferKind::private_memory)},
            {"buffers", row.place.copies},
            {"wrong", config_.check ? json(row.wrong) : json()},
            {"sent", sent(row.traffic)},
            {"sent_by_all", sent(row.all_traffic)}};
  }

  json result_of(Row& row) const {
    const double parts = row.operation->parts();
    const auto microseconds = [&](double share) { return quantile(row.times.samples, share) / parts * 1e6; };
    const double p50 = microseconds(0.5);
    const double algbw = p50 > 0 ? static_cast<double>(row.place.bytes) / p50 / 1e3 : 0;
    json result = head_of(row);
    result["calls"] = row.times.calls;
    result["algbw_gbs"] = algbw;
    result["busbw_gbs"] = algbw * bus_factor(config_.op, world_.size());
    result["time_us"] = {{"min", microseconds(0)},
                         {"p50", p50},
                         {"p99", microseconds(0.99)},
                         {"max", microseconds(1)},
                         {"mean", row.times.mean() / parts * 1e6}};
    const auto limit = limit_of(row);
    result["limit_us"] = limit ? json(*limit * 1e6) : json();
    result["percent_of_limit"] = limit && p50 > 0 ? json(*limit * 1e8 / p50) : json();
    return result;
  }

  // The document without its rows. Its limits are those at the largest size.
  json document() const {
    const std::size_t largest = rows_.back().place.bytes;
    json limits = {{"memory_traffic_gbs", nullptr}, {"socket_exchange_gbs", nullptr}, {"bytes", largest}};
    if (memory_)
      if (const auto figures = memory_->at(largest)) {
        limits["memory_traffic_gbs"] = std::max(figures->kernel_gbs, figures->copy_gbs);
        limits["memory_kernel_gbs"] = figures->kernel_gbs;
        limits["memory_copy_gbs"] = figures->copy_gbs;
      }
    if (sockets_)
      if (const auto gbs = sockets_->at(largest)) limits["socket_exchange_gbs"] = *gbs;
    json notes = json::array();
    if (memory_ && !memory_->problem().empty()) notes.push_back("no limit of the memory: " + memory_->problem());
    if (sockets_ && !sockets_->problem().empty()) notes.push_back("no limit of sockets: " + sockets_->problem());
    return {{"op", config_.name()},     {"ranks", world_.size()}, {"cores", cores_},
            {"rotate", config_.rotate}, {"threads", 1},           {"machine", about_machine()},
            {"limits", limits},         {"notes", notes},         {"results", json::array()}};
  }

  World& world_;
  const BenchConfig& config_;
  const Observer& observer_;
  int cores_;
  Worlds worlds_;
  std::deque<BenchConfig> variants_;            // one for each type and reduction
  std::size_t room_ = kPage;                    // bytes for a rank's buffers of any size
  std::vector<std::unique_ptr<Block>> blocks_;  // in the arenas of worlds_; after it, so that they are freed before it
  std::vector<Row> rows_;
  std::unique_ptr<MemoryLimit> memory_;
  std::unique_ptr<SocketLimit> sockets_;
};

}  // namespace

json run_bench(World& world, const BenchConfig& config, const Observer& observer) {
  return Bench(world, config, observer).run();
}

}  // namespace lockstep::measure
