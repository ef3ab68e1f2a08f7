#include "lockstep/comm/tracing.h"

#include <fmt/format.h>

#include <cstdlib>
#include <vector>

#include "lockstep/base/clock.h"
#include "lockstep/base/log.h"
#include "lockstep/error.h"
#include "lockstep/trace/chrome.h"
#include "lockstep/trace/rank_trace.h"

namespace lockstep::comm {
namespace {

constexpr auto kPatience = 60s;
constexpr int kRounds = 20;

using std::chrono::nanoseconds;

std::int64_t now_ns() { return nanoseconds(Clock::now().time_since_epoch()).count(); }

// How far rank 0's clock is ahead of a peer's. The peer is asked kRounds times; the answer that came fastest is the
// most exact one, and it is wrong by half of its round trip at most. Where no difference is found beyond that, there is
// none: ranks of one host have the same clock, and clocks of two hosts differ by the time between their starts.
trace::ClockOffset ask_offset(Engine& engine, Rank peer) {
  std::int64_t best_round = -1;
  std::int64_t offset = 0;
  for (int i = 0; i < kRounds; ++i) {
    std::int64_t theirs = 0;
    const std::int64_t before = now_ns();
    engine.send(peer, bytes_of(before), kTraceTag, kPatience);
    engine.recv(peer, writable_bytes_of(theirs), kTraceTag, kPatience);
    const std::int64_t after = now_ns();
    if (best_round >= 0 && after - before >= best_round) continue;
    best_round = after - before;
    offset = before + best_round / 2 - theirs;
  }
  return trace::ClockOffset(std::abs(offset) <= best_round / 2 + 1 ? 0 : offset);
}

void answer_offset(Engine& engine, Rank peer) {
  for (int i = 0; i < kRounds; ++i) {
    std::int64_t asked = 0;
    engine.recv(peer, writable_bytes_of(asked), kTraceTag, kPatience);
    engine.send(peer, bytes_of(now_ns()), kTraceTag, kPatience);
  }
}

trace::RankTrace receive(Engine& engine, Rank peer) {
  std::uint64_t size = 0;
  engine.recv(peer, writable_bytes_of(size), kTraceTag, kPatience);
  std::string bytes(size, '\0');
  engine.recv(peer, std::as_writable_bytes(std::span(bytes)), kTraceTag, kPatience);
  return trace::parse(bytes);
}

void send(Engine& engine, Rank peer, const std::string& bytes) {
  const std::uint64_t size = bytes.size();
  engine.send(peer, bytes_of(size), kTraceTag, kPatience);
  engine.send(peer, std::as_bytes(std::span(bytes)), kTraceTag, kPatience);
}

}  // namespace

std::string Tracing::collect(Engine& engine) noexcept try {
  trace::RankTrace mine = recorder_.snapshot();
  if (engine.rank() != 0) {
    answer_offset(engine, 0);
    send(engine, 0, trace::serialize(mine));
    return {};
  }
  std::uint64_t dropped = mine.dropped;
  std::vector<trace::RankTrace> ranks;
  std::vector<trace::ClockOffset> offsets{trace::ClockOffset(0)};
  ranks.push_back(std::move(mine));
  for (Rank rank = 1; rank < engine.size(); ++rank) {
    offsets.push_back(ask_offset(engine, rank));
    ranks.push_back(receive(engine, rank));
    dropped += ranks.back().dropped;
  }
  try {
    trace::write_chrome_trace(file_, ranks, offsets);
  } catch (const Error& error) {
    return fmt::format("there is no trace: {}", error.what());
  }
  if (dropped > 0) log::warn("the trace {} lacks {} spans: the buffers were full", file_, dropped);
  return {};
} catch (const std::exception& error) {
  log::warn("rank {}: no whole trace: {}", engine.rank(), error.what());
  save_alone(engine.rank());
  return {};
}

void Tracing::save_alone(Rank rank) noexcept try {
  trace::write_chrome_trace(fmt::format("{}.rank{}.json", file_, rank), {recorder_.snapshot()});
} catch (const std::exception& error) {
  log::warn("rank {}: no trace: {}", rank, error.what());
}

}  // namespace lockstep::comm
