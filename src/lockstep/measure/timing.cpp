#include "lockstep/measure/timing.h"
#include "lockstep/base/clock.h"

#include <algorithm>
#include <cmath>
#include <span>

namespace lockstep::measure {
namespace {

constexpr Tag kTag = 65000;        // the messages of p2p have tag 0
constexpr double kTrusted = 2e-3;  // seconds of a loop that is long enough to tell how long a call takes
constexpr double kStretch = 10e-6;
constexpr std::size_t kLeastSamples = 3;

double timed_loop(const std::function<void()>& call, std::size_t calls) {
  const auto start = Clock::now();
  for (std::size_t i = 0; i < calls; ++i) call();
  return seconds_since(start);
}

template <typename Combine>
std::uint64_t combine_on_rank_0(Communicator& comm, std::uint64_t value, Combine combine) {
  std::int64_t raw = static_cast<std::int64_t>(value);
  if (comm.rank() != 0) {
    comm.send(0, std::span(&raw, 1), kTag);
    return value;
  }
  for (Rank rank = 1; rank < comm.size(); ++rank) {
    comm.recv(rank, std::span(&raw, 1), kTag);
    value = combine(value, static_cast<std::uint64_t>(raw));
  }
  return value;
}

}  // namespace

Pace find_pace(Communicator& comm, const std::function<void()>& call, double seconds, std::size_t wanted) {
  std::size_t tried = 1;
  const auto faster_of_two = [&] { return std::min(timed_loop(call, tried), timed_loop(call, tried)); };
  double loop = faster_of_two();
  while (from_rank_0(comm, loop < std::min(kTrusted, seconds) ? 1 : 0) == 1) {
    tried *= 2;
    loop = faster_of_two();
  }
  const double one = std::max(loop / static_cast<double>(tried), 1e-9);
  const auto calls = static_cast<std::size_t>(std::ceil(kStretch / one));
  const auto fill = static_cast<std::size_t>(seconds / one / static_cast<double>(calls));
  Pace pace{from_rank_0(comm, calls), from_rank_0(comm, std::max(fill, kLeastSamples))};
  if (wanted > 0) {
    pace.calls = std::min(pace.calls, wanted);
    pace.stretches = (wanted + pace.calls - 1) / pace.calls;
  }
  return pace;
}

void time_loop(Communicator& comm, const std::function<void()>& call, const Pace& pace, int warmup, Times& times) {
  std::vector<Clock::time_point> readings(pace.stretches + 1);
  for (int i = 0; i < warmup; ++i) call();
  comm.barrier();
  readings[0] = Clock::now();
  for (std::size_t batch = 1; batch <= pace.stretches; ++batch) {
    for (std::size_t i = 0; i < pace.calls; ++i) call();
    readings[batch] = Clock::now();
  }

  const auto between = [&](std::size_t from, std::size_t to) {
    return std::chrono::duration<double>(readings[to] - readings[from]).count();
  };
  std::vector<double> mine;  // stretch by stretch, then the whole loop
  for (std::size_t batch = 0; batch < pace.stretches; ++batch)
    mine.push_back(between(batch, batch + 1) / static_cast<double>(pace.calls));
  mine.push_back(between(0, pace.stretches));
  if (comm.rank() != 0) return comm.send(0, mine, kTag);
  std::vector<double> theirs(mine.size());
  for (Rank rank = 1; rank < comm.size(); ++rank) {
    comm.recv(rank, theirs, kTag);
    for (std::size_t i = 0; i < mine.size(); ++i) mine[i] = std::max(mine[i], theirs[i]);
  }
  times.samples.insert(times.samples.end(), mine.begin(), mine.end() - 1);
  times.loops += mine.back();
  times.calls += pace.calls * pace.stretches;
}

std::uint64_t from_rank_0(Communicator& comm, std::uint64_t value) {
  std::int64_t raw = static_cast<std::int64_t>(value);
  for (Rank rank = 1; comm.rank() == 0 && rank < comm.size(); ++rank) comm.send(rank, std::span(&raw, 1), kTag);
  if (comm.rank() != 0) comm.recv(0, std::span(&raw, 1), kTag);
  return static_cast<std::uint64_t>(raw);
}

std::uint64_t sum_on_rank_0(Communicator& comm, std::uint64_t value) {
  return combine_on_rank_0(comm, value, [](auto a, auto b) { return a + b; });
}

std::uint64_t max_on_rank_0(Communicator& comm, std::uint64_t value) {
  return combine_on_rank_0(comm, value, [](auto a, auto b) { return std::max(a, b); });
}

}  // namespace lockstep::measure
