#include "lockstep/comm/tracing.h"

#include <fmt/format.h>

#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/trace/chrome.h"

namespace lockstep::comm {
namespace {

constexpr auto kPatience = 60s;
constexpr int kRounds = 20;

using std::chrono::nanoseconds;

std::int64_t now_ns() { return nanoseconds(Clock::now().time_since_epoch()).count(); }

// How far rank 0's clock is ahead of a peer's. The peer is asked kRounds times; the answer that came fastest is the
// most exact one.
trace::ClockOffset ask_offset(transport::Transport& transport, Rank peer, Tag tag) {
  std::int64_t best_round = -1;
  std::int64_t offset = 0;
  for (int i = 0; i < kRounds; ++i) {
    std::int64_t theirs = 0;
    const std::int64_t before = now_ns();
    transport.send(peer, tag, bytes_of(before), kPatience);
    transport.recv(peer, tag, writable_bytes_of(theirs), kPatience);
    const std::int64_t after = now_ns();
    if (best_round >= 0 && after - before >= best_round) continue;
    best_round = after - before;
    offset = before + best_round / 2 - theirs;
  }
  return trace::ClockOffset(offset);
}

void answer_offset(transport::Transport& transport, Rank peer, Tag tag) {
  for (int i = 0; i < kRounds; ++i) {
    std::int64_t asked = 0;
    transport.recv(peer, tag, writable_bytes_of(asked), kPatience);
    transport.send(peer, tag, bytes_of(now_ns()), kPatience);
  }
}

trace::RankTrace receive(transport::Transport& transport, Rank peer, Tag tag) {
  std::uint64_t size = 0;
  transport.recv(peer, tag, writable_bytes_of(size), kPatience);
  std::string bytes(size, '\0');
  transport.recv(peer, tag, std::as_writable_bytes(std::span(bytes)), kPatience);
  return trace::parse(bytes);
}

void send(transport::Transport& transport, Rank peer, Tag tag, const std::string& bytes) {
  const std::uint64_t size = bytes.size();
  transport.send(peer, tag, bytes_of(size), kPatience);
  transport.send(peer, tag, std::as_bytes(std::span(bytes)), kPatience);
}

}  // namespace

std::string Tracing::collect(const collectives::Party& party, Tag tag) noexcept try {
  trace::RankTrace mine = recorder_.snapshot();
  if (party.me != 0) {
    answer_offset(*party.transport, party.world[0], tag);
    send(*party.transport, party.world[0], tag, trace::serialize(mine));
    return {};
  }
  std::uint64_t dropped = mine.dropped;
  std::vector<trace::RankTrace> ranks;
  std::vector<trace::ClockOffset> offsets{trace::ClockOffset(0)};
  ranks.push_back(std::move(mine));
  for (Rank rank = 1; rank < party.size(); ++rank) {
    const Rank peer = party.world[static_cast<std::size_t>(rank)];
    offsets.push_back(ask_offset(*party.transport, peer, tag));
    ranks.push_back(receive(*party.transport, peer, tag));
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
  log::warn("rank {}: no whole trace: {}", party.me, error.what());
  save_alone(party.me);
  return {};
}

void Tracing::save_alone(Rank rank) noexcept try {
  trace::write_chrome_trace(fmt::format("{}.rank{}.json", file_, rank), {recorder_.snapshot()});
} catch (const std::exception& error) {
  log::warn("rank {}: no trace: {}", rank, error.what());
}

}  // namespace lockstep::comm
