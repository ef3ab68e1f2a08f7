// Proofs about plans, with no process started: for every number of ranks up to 33 a simulation runs all ranks' plans.
#include "lockstep/collectives/plan.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <deque>
#include <map>
#include <set>

#include "lockstep/collectives/picture.h"
#include "lockstep/error.h"

namespace lockstep::collectives {
namespace {

constexpr int kMostRanks = 33;

// How often each rank's share is in a value.
using Shares = std::map<Rank, int>;

struct Message {
  Chunks chunks;
  std::vector<Shares> values;
};

// Runs the plans of all ranks. A value is the set of shares that were summed in it.
class Simulation {
 public:
  Simulation(Op op, Algorithm algorithm, int p) : p_(p) {
    for (Rank rank = 0; rank < p; ++rank) {
      plans_.push_back(make_plan(op, algorithm, rank, p));
      chunks_ = plans_.back().chunks;
      held_.emplace_back(static_cast<std::size_t>(chunks_));
    }
    shelves_.resize(static_cast<std::size_t>(p));
    for (Rank rank = 0; rank < p; ++rank)
      for (int chunk = 0; chunk < chunks_; ++chunk) begin(op, rank, chunk);
  }

  // The value that a rank holds at the start.
  void begin(Op op, Rank rank, int chunk) {
    const Plan& plan = plans_[idx(rank)];
    const int owner = plan.order == ChunkOrder::from_myself ? (chunk + rank) % p_ : chunk;
    const bool has = op == Op::all_reduce || op == Op::reduce || op == Op::reduce_scatter || op == Op::barrier ||
                     ((op == Op::broadcast || op == Op::scatter) && rank == 0) ||
                     ((op == Op::gather || op == Op::all_gather) && owner == rank);
    if (has) at(rank, chunk)[op == Op::gather || op == Op::all_gather ? owner : op == Op::scatter ? chunk : rank] = 1;
  }

  // Sends and receives meet in the order of each pair; a rank goes on when its step's receive is there.
  void run() {
    std::map<std::pair<Rank, Rank>, std::deque<Message>> wires;
    std::vector<std::size_t> next(static_cast<std::size_t>(p_));
    std::vector<bool> sent(static_cast<std::size_t>(p_));
    bool moved = true;
    while (moved) {
      moved = false;
      for (Rank rank = 0; rank < p_; ++rank) {
        const Plan& plan = plans_[idx(rank)];
        if (next[idx(rank)] == plan.steps.size()) continue;
        const Step& step = plan.steps[next[idx(rank)]];
        if (!sent[idx(rank)] && step.to != kNobody) {
          ASSERT_NE(step.to, rank);
          Message message{step.send, {}};
          for (int i = 0; i < step.send.count; ++i) message.values.push_back(at(rank, step.send.first + i));
          wires[{rank, step.to}].push_back(message);
        }
        sent[idx(rank)] = true;
        if (step.from != kNobody) {
          auto& wire = wires[{step.from, rank}];
          if (wire.empty()) continue;
          receive(rank, step, wire.front());
          wire.pop_front();
        }
        sent[idx(rank)] = false;
        ++next[idx(rank)];
        moved = true;
      }
    }
    for (Rank rank = 0; rank < p_; ++rank)
      EXPECT_EQ(next[idx(rank)], plans_[idx(rank)].steps.size()) << "rank " << rank << " waits for ever";
    for (const auto& [pair, wire] : wires)
      EXPECT_TRUE(wire.empty()) << "a message from " << pair.first << " to " << pair.second << " meets no receive";
  }

  void receive(Rank rank, const Step& step, const Message& message) {
    ASSERT_EQ(message.chunks.count, step.recv.count);
    for (int i = 0; i < step.recv.count; ++i) {
      const int chunk = step.recv.first + i;
      const Shares& value = message.values[idx(i)];
      if (step.arrival == Arrival::replace) at(rank, chunk) = value;
      if (step.arrival == Arrival::reduce) add(at(rank, chunk), value);
      if (step.arrival == Arrival::shelve) add(shelves_[idx(rank)][chunk], value);
      if (step.fold) add(at(rank, chunk), shelves_[idx(rank)][chunk]);
      if (step.arrival == Arrival::reduce && step.last) {
        EXPECT_EQ(at(rank, chunk).size(), idx(p_)) << "divided before it was complete";
      }
    }
  }

  static void add(Shares& to, const Shares& value) {
    for (const auto& [rank, times] : value) to[rank] += times;
  }
  static std::size_t idx(int i) { return static_cast<std::size_t>(i); }
  Shares& at(Rank rank, int chunk) { return held_[idx(rank)][idx(chunk)]; }
  const Plan& plan(Rank rank) const { return plans_[idx(rank)]; }
  int chunks() const { return chunks_; }

 private:
  int p_;
  int chunks_ = 1;
  std::vector<Plan> plans_;
  std::vector<std::vector<Shares>> held_;
  std::vector<std::map<int, Shares>> shelves_;
};

struct Case {
  Op op;
  Algorithm algorithm;
};

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (const Op op : all_ops())
    for (const Algorithm algorithm : algorithms_of(op))
      if (op != Op::all_to_all && op != Op::barrier) cases.push_back({op, algorithm});  // these have tests of their own
  return cases;
}

class EveryPlan : public ::testing::TestWithParam<Case> {};

Shares everyone_once(int p) {
  Shares shares;
  for (Rank rank = 0; rank < p; ++rank) shares[rank] = 1;
  return shares;
}

TEST_P(EveryPlan, SumsEveryChunkOnceFromEachRankAndEverySendMeetsItsReceive) {
  const auto [op, algorithm] = GetParam();
  for (int p = 1; p <= kMostRanks; ++p) {
    SCOPED_TRACE(fmt::format("{} ranks", p));
    Simulation simulation(op, algorithm, p);
    simulation.run();
    for (Rank rank = 0; rank < p; ++rank)
      for (int chunk = 0; chunk < simulation.chunks(); ++chunk) {
        const int owner = simulation.plan(rank).order == ChunkOrder::from_myself ? (chunk + rank) % p : chunk;
        Shares expected;
        switch (op) {
          case Op::all_reduce:
            expected = everyone_once(p);
            break;
          case Op::reduce:
            if (rank != 0) continue;
            expected = everyone_once(p);
            break;
          case Op::reduce_scatter:
            if (chunk != rank) continue;
            expected = everyone_once(p);
            break;
          case Op::broadcast:
            expected = {{0, 1}};
            break;
          case Op::scatter:
            if (chunk != rank) continue;
            expected = {{chunk, 1}};
            break;
          case Op::gather:
            if (rank != 0) continue;
            expected = {{owner, 1}};
            break;
          default:
            expected = {{owner, 1}};
        }
        EXPECT_EQ(simulation.at(rank, chunk), expected) << "rank " << rank << ", chunk " << chunk;
      }
    if (::testing::Test::HasFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(, EveryPlan, ::testing::ValuesIn(all_cases()), [](const auto& named) {
  return std::string(name_of(named.param.op)) + "_" + name_of(named.param.algorithm);
});

TEST(Plan, AllToAllSendsEachChunkOnceToItsRank) {
  for (const Algorithm algorithm : algorithms_of(Op::all_to_all))
    for (int p = 1; p <= kMostRanks; ++p)
      for (Rank rank = 0; rank < p; ++rank) {
        std::set<Rank> sent;
        std::set<Rank> received;
        for (const Step& step : make_plan(Op::all_to_all, algorithm, rank, p).steps) {
          EXPECT_EQ(step.send, (Chunks{step.to, 1}));
          EXPECT_EQ(step.recv, (Chunks{step.from, 1}));
          EXPECT_TRUE(sent.insert(step.to).second && received.insert(step.from).second);
        }
        EXPECT_EQ(sent.size(), static_cast<std::size_t>(p - 1));
        EXPECT_EQ(sent, received);
        EXPECT_FALSE(sent.contains(rank));
      }
}

// Nobody leaves a barrier before everybody has come: messages must lead from every rank to every other.
TEST(Plan, BarriersHearFromEveryone) {
  for (const Algorithm algorithm : algorithms_of(Op::barrier))
    for (int p = 1; p <= kMostRanks; ++p) {
      Simulation simulation(Op::barrier, algorithm, p);
      simulation.run();
      // A barrier's messages replace; follow who has heard from whom instead.
      std::vector<std::set<Rank>> heard(static_cast<std::size_t>(p));
      for (Rank rank = 0; rank < p; ++rank) heard[static_cast<std::size_t>(rank)].insert(rank);
      std::vector<std::size_t> next(static_cast<std::size_t>(p));
      std::map<std::pair<Rank, Rank>, std::deque<std::set<Rank>>> wires;
      std::vector<bool> sent(static_cast<std::size_t>(p));
      for (bool moved = true; moved;) {
        moved = false;
        for (Rank rank = 0; rank < p; ++rank) {
          const auto r = static_cast<std::size_t>(rank);
          if (next[r] == simulation.plan(rank).steps.size()) continue;
          const Step& step = simulation.plan(rank).steps[next[r]];
          if (!sent[r] && step.to != kNobody) wires[{rank, step.to}].push_back(heard[r]);
          sent[r] = true;
          if (step.from != kNobody) {
            auto& wire = wires[{step.from, rank}];
            if (wire.empty()) continue;
            heard[r].insert(wire.front().begin(), wire.front().end());
            wire.pop_front();
          }
          sent[r] = false;
          ++next[r];
          moved = true;
        }
      }
      for (const auto& who : heard) EXPECT_EQ(who.size(), static_cast<std::size_t>(p)) << name_of(algorithm);
    }
}

// --- the table of docs/allreduce.md ---

struct Expected {
  int steps;
  double bytes;  // sent by the busiest rank, as a multiple of the buffer
};

int ceil_log2(int p) {
  int steps = 0;
  while ((1 << steps) < p) ++steps;
  return steps;
}

Expected table(Algorithm algorithm, int p) {
  const int q = 1 << (ceil_log2(p + 1) - 1);
  switch (algorithm) {
    case Algorithm::naive:
      return {2 * (p - 1), p - 1.0};
    case Algorithm::exchange:
      return {p - 1, p - 1.0};
    case Algorithm::tree:
      return {2 * ceil_log2(p), static_cast<double>(ceil_log2(p))};
    case Algorithm::ring:
    case Algorithm::ordered:
      return {2 * (p - 1), 2.0 * (p - 1) / p};
    case Algorithm::halving_doubling:
      return {2 * ceil_log2(q) + (p > q ? 2 : 0), 2.0 * (q - 1) / q + (p > q ? 1 : 0)};
    default:
      return {};
  }
}

TEST(Plan, StepsAndBytesAreThoseOfTheTable) {
  for (const Algorithm algorithm : algorithms_of(Op::all_reduce))
    for (int p = 1; p <= kMostRanks; ++p) {
      SCOPED_TRACE(fmt::format("{}, {} ranks", name_of(algorithm), p));
      const Expected expected = table(algorithm, p);
      const int chunks = make_plan(Op::all_reduce, algorithm, 0, p).chunks;
      for (const std::size_t count : {static_cast<std::size_t>(chunks) * 840, std::size_t{4097}, std::size_t{1}}) {
        int most_steps = 0;
        std::size_t most = 0;
        for (Rank rank = 0; rank < p; ++rank) {
          const Cost cost = cost_of(make_plan(Op::all_reduce, algorithm, rank, p), count);
          most_steps = std::max(most_steps, cost.steps);
          most = std::max(most, cost.elements);
        }
        EXPECT_EQ(most_steps, expected.steps);
        const double exact = expected.bytes * static_cast<double>(count);
        // A rank sends each chunk at most as often as it takes steps, and no chunk is off by more than one element.
        const double off = count % static_cast<std::size_t>(chunks) == 0 ? 1e-6 : expected.steps * chunks;
        EXPECT_NEAR(static_cast<double>(most), exact, off);
      }
    }
}

TEST(Plan, WhatAnOpDoesNotHaveIsAnErrorThatListsTheChoices) {
  try {
    make_plan(Op::scatter, Algorithm::ring, 0, 2);
    FAIL() << "no error";
  } catch (const UsageError& error) {
    EXPECT_EQ(std::string(error.what()), "scatter has no algorithm 'ring'; try: one of auto, direct, naive, tree");
  }
}

TEST(Picture, EndsAsTheOpSays) {
  for (const int p : {1, 2, 3, 4, 7, 8})
    for (const Op op : {Op::all_reduce, Op::all_gather, Op::broadcast})
      for (const Algorithm algorithm : algorithms_of(op)) {
        const Playback playback = play(op, algorithm, p);
        for (const auto& rank : playback.moments.back().shares)
          for (const int shares : rank) ASSERT_EQ(shares, op == Op::all_reduce ? p : 1) << name_of(algorithm);
        std::size_t messages = 0;
        for (Rank rank = 0; rank < p; ++rank)
          messages += static_cast<std::size_t>(cost_of(make_plan(op, algorithm, rank, p), 100).messages);
        EXPECT_EQ(playback.flows.size(), messages);
      }
}

TEST(Picture, OfARing) {
  const Playback playback = play(Op::all_reduce, Algorithm::ring, 3);
  EXPECT_EQ(text_of(playback),
            "step 0     2 -c1-> 0   0 -c2-> 1   1 -c0-> 2\n"
            "step 1     2 -c0-> 0   0 -c1-> 1   1 -c2-> 2\n"
            "step 2     2 -c2-> 0   0 -c0-> 1   1 -c1-> 2\n"
            "step 3     2 -c1-> 0   0 -c2-> 1   1 -c0-> 2\n");
  EXPECT_NE(svg_of(playback, "ring").find("</svg>"), std::string::npos);
}

TEST(Plan, CanBePrinted) {
  EXPECT_EQ(describe(make_plan(Op::all_reduce, Algorithm::ring, 0, 3)),
            "step 0  send chunk 2 to 1, recv chunk 1 from 2 and reduce\n"
            "step 1  send chunk 1 to 1, recv chunk 0 from 2 and reduce\n"
            "step 2  send chunk 0 to 1, recv chunk 2 from 2\n"
            "step 3  send chunk 2 to 1, recv chunk 1 from 2\n");
}

}  // namespace
}  // namespace lockstep::collectives
