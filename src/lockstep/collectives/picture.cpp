#include "lockstep/collectives/picture.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <map>

#include "lockstep/base/svg.h"

namespace lockstep::collectives {
namespace {

std::size_t idx(int i) { return static_cast<std::size_t>(i); }

// The chunk of the user's buffer that is chunk `chunk` of the plan.
int named(const Plan& plan, Rank rank, int chunk, int ranks) {
  return plan.order == ChunkOrder::from_myself ? (chunk + rank) % ranks : chunk;
}

bool has_at_start(Op op, Rank rank, int chunk) {
  switch (op) {
    case Op::broadcast:
    case Op::scatter:
      return rank == 0;
    case Op::gather:
    case Op::all_gather:
      return rank == chunk;
    default:
      return true;
  }
}

struct Sent {
  int tick;
  std::vector<int> shares;
};

}  // namespace

Playback play(Op op, Algorithm algorithm, int ranks) {
  Playback playback{.ranks = ranks, .chunks = 0, .flows = {}, .moments = {}};
  std::vector<Plan> plans;
  for (Rank rank = 0; rank < ranks; ++rank) plans.push_back(make_plan(op, algorithm, rank, ranks));
  playback.chunks = plans[0].chunks;

  std::vector<std::vector<int>> shares(idx(ranks), std::vector<int>(idx(playback.chunks)));
  std::vector<std::vector<int>> shelf = shares;
  for (Rank rank = 0; rank < ranks; ++rank)
    for (int chunk = 0; chunk < playback.chunks; ++chunk) shares[idx(rank)][idx(chunk)] = has_at_start(op, rank, chunk);
  playback.moments.push_back({shares});

  std::map<std::pair<Rank, Rank>, std::deque<Sent>> wires;
  std::vector<std::size_t> next(idx(ranks));
  std::vector<bool> sent(idx(ranks));
  for (int tick = 0;; ++tick) {
    // First all sends of this tick, which send what ranks hold before it; then the receives.
    for (Rank rank = 0; rank < ranks; ++rank) {
      const Plan& plan = plans[idx(rank)];
      if (next[idx(rank)] == plan.steps.size() || sent[idx(rank)]) continue;
      const Step& step = plan.steps[next[idx(rank)]];
      sent[idx(rank)] = true;
      if (step.to == kNobody) continue;
      Sent message{tick, {}};
      for (int i = 0; i < step.send.count; ++i)
        message.shares.push_back(shares[idx(rank)][idx(named(plan, rank, step.send.first + i, ranks))]);
      wires[{rank, step.to}].push_back(message);
    }
    bool moved = false;
    for (Rank rank = 0; rank < ranks; ++rank) {
      const Plan& plan = plans[idx(rank)];
      if (next[idx(rank)] == plan.steps.size()) continue;
      const Step& step = plan.steps[next[idx(rank)]];
      if (step.from != kNobody) {
        auto& wire = wires[{step.from, rank}];
        if (wire.empty()) continue;
        for (int i = 0; i < step.recv.count; ++i) {
          const int chunk = named(plan, rank, step.recv.first + i, ranks);
          const int arriving = wire.front().shares[idx(i)];
          int& held = shares[idx(rank)][idx(chunk)];
          int& kept = shelf[idx(rank)][idx(chunk)];
          if (step.arrival == Arrival::replace) held = arriving;
          if (step.arrival == Arrival::reduce) held += arriving;
          if (step.arrival == Arrival::shelve) kept += arriving;
          if (step.fold) held += kept;
        }
        wire.pop_front();
        playback.flows.push_back(
            {tick, step.from, rank, {named(plan, rank, step.recv.first, ranks), step.recv.count}, step.arrival});
      }
      sent[idx(rank)] = false;
      ++next[idx(rank)];
      moved = true;
    }
    if (!moved) return playback;
    playback.moments.push_back({shares});
  }
}

std::string text_of(const Playback& playback) {
  std::string text;
  const int ticks = static_cast<int>(playback.moments.size()) - 1;
  for (int tick = 0; tick < ticks; ++tick) {
    text += fmt::format("step {:<3}", tick);
    for (const Flow& flow : playback.flows) {
      if (flow.tick != tick) continue;
      const int last = (flow.chunks.first + flow.chunks.count - 1) % playback.chunks;
      const std::string chunks = playback.chunks == 1     ? "all"
                                 : flow.chunks.count == 1 ? fmt::format("c{}", flow.chunks.first)
                                 : flow.chunks.count == playback.chunks
                                     ? "all"
                                     : fmt::format("c{}..c{}", flow.chunks.first, last);
      text += fmt::format("   {} -{}-> {}", flow.from, chunks, flow.to);
    }
    text += '\n';
  }
  return text;
}

std::string svg_of(const Playback& playback, const std::string& title) {
  const int ticks = static_cast<int>(playback.moments.size()) - 1;
  const int box = std::max(10, 72 / playback.chunks);
  const int column = box * playback.chunks + 70;
  const int row = 56;
  const int left = 70;
  const int top = 64;
  const int width =
      std::max(left + ticks * column + box * playback.chunks + 30, 24 + static_cast<int>(text_width(title, 15)));
  const int height = top + playback.ranks * row + 10;
  const auto x_of = [&](int moment) { return left + moment * column; };
  const auto y_of = [&](Rank rank) { return top + rank * row; };

  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" height=\"{1}\" "
      "font-family=\"sans-serif\" font-size=\"12\">\n"
      "<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n"
      "<defs><marker id=\"tip\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" markerWidth=\"7\" markerHeight=\"7\" "
      "orient=\"auto\"><path d=\"M0 0L8 4L0 8z\" fill=\"#b3541e\"/></marker></defs>\n"
      "<text x=\"12\" y=\"22\" font-size=\"15\" fill=\"#222\">{2}</text>\n",
      width, height, title);
  for (int tick = 0; tick < ticks; ++tick)
    svg += fmt::format("<text x=\"{}\" y=\"44\" fill=\"#666\" text-anchor=\"middle\">step {}</text>\n",
                       x_of(tick) + box * playback.chunks + 35, tick);
  for (Rank rank = 0; rank < playback.ranks; ++rank) {
    svg += fmt::format("<text x=\"12\" y=\"{}\" fill=\"#222\">rank {}</text>\n", y_of(rank) + 18, rank);
    for (int moment = 0; moment <= ticks; ++moment)
      for (int chunk = 0; chunk < playback.chunks; ++chunk) {
        const int held = playback.moments[idx(moment)].shares[idx(rank)][idx(chunk)];
        const double ink = held == 0 ? 0.0 : 0.15 + 0.85 * held / playback.ranks;
        svg += fmt::format(
            "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"28\" fill=\"#1f5f8b\" fill-opacity=\"{:.2f}\" "
            "stroke=\"#456\"/><text x=\"{}\" y=\"{}\" font-size=\"10\" text-anchor=\"middle\" fill=\"{}\">{}</text>\n",
            x_of(moment) + chunk * box, y_of(rank), box - 1, std::min(ink, 1.0), x_of(moment) + chunk * box + box / 2,
            y_of(rank) + 18, ink > 0.55 ? "#fff" : "#234", held);
      }
  }
  for (const Flow& flow : playback.flows) {
    const int from_x = x_of(flow.tick) + box * playback.chunks + 4;
    const int to_x = x_of(flow.tick + 1) - 4;
    svg += fmt::format(
        "<path d=\"M{} {}C{} {} {} {} {} {}\" fill=\"none\" stroke=\"#b3541e\" stroke-width=\"1.3\" "
        "marker-end=\"url(#tip)\"/>\n",
        from_x, y_of(flow.from) + 14, from_x + 25, y_of(flow.from) + 14, to_x - 25, y_of(flow.to) + 14, to_x,
        y_of(flow.to) + 14);
  }
  return svg + "</svg>\n";
}

}  // namespace lockstep::collectives
