// What the communicator promises beyond right numbers: bits, order, groups, the arena, and errors that explain.
#include "lockstep/communicator.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>
#include <thread>

#include "cases.h"
#include "lockstep/base/clock.h"
#include "lockstep/collectives/plan.h"
#include "lockstep/error.h"
#include "lockstep/world.h"

namespace lockstep {
namespace {

using namespace std::chrono_literals;

transport::Options over(const std::string& kind) {
  transport::Options options;
  options.kind = parse_transport(kind);
  options.timeout = 30s;
  return options;
}

comm::Options small_knobs() {
  comm::Options options;
  options.timeout = 30s;
  options.small_bytes = 512;
  options.segment_bytes = 2048;
  return options;
}

class EveryTransport : public ::testing::TestWithParam<std::string> {
 protected:
  void run(int ranks, const std::function<void(Communicator&)>& body, comm::Options options = small_knobs()) {
    thread_world(ranks, body, over(GetParam()), options);
  }
};
INSTANTIATE_TEST_SUITE_P(, EveryTransport, ::testing::Values("shm", "tcp"),
                         [](const auto& named) { return named.param; });

// --- bits ---

template <typename T>
std::vector<T> noise(std::size_t count, int seed) {
  std::mt19937 random(static_cast<unsigned>(seed));
  std::normal_distribution<float> normal;
  std::vector<T> values(count);
  for (auto& value : values) {
    const float x = normal(random);
    if constexpr (std::is_same_v<T, Float16>)
      value = collectives::to_float16(x);
    else if constexpr (std::is_same_v<T, BFloat16>)
      value = collectives::to_bfloat16(x);
    else
      value = static_cast<T>(x);
  }
  return values;
}

template <typename T>
std::string bits(std::span<const T> values) {
  return {reinterpret_cast<const char*>(values.data()), values.size_bytes()};
}

// All results of one kind of call, by algorithm, from all ranks.
template <typename T>
void expect_same_bits(int p, std::size_t count, const std::string& transport, ReduceOp op) {
  std::mutex mutex;
  std::map<std::string, std::set<std::string>> results;
  thread_world(
      p,
      [&](Communicator& comm) {
        const auto mine = noise<T>(count, 100 + comm.rank());
        const auto memory = comm.allocate<T>(count);
        std::vector<Algorithm> algorithms = collectives::algorithms_of(Op::all_reduce);
        if (transport == "shm") algorithms.push_back(Algorithm::direct);
        for (const Algorithm algorithm : algorithms)
          for (const bool arena : {false, true}) {
            std::vector<T> own(mine);
            std::span<T> buffer(own);
            if (arena) {
              std::copy(mine.begin(), mine.end(), memory->begin());
              buffer = *memory;
            }
            comm.all_reduce(buffer, op, {.algorithm = algorithm, .timeout = {}});
            const std::lock_guard lock(mutex);
            results[name_of(algorithm)].insert(bits(std::span<const T>(buffer)));
          }
      },
      over(transport), small_knobs());
  for (const auto& [algorithm, found] : results) EXPECT_EQ(found.size(), 1U) << algorithm << ", " << p << " ranks";
  if (results.contains("direct")) {
    EXPECT_EQ(results["direct"], results["ordered"]) << p << " ranks, " << count << " elements";
  }
}

TEST(Bits, AreTheSameOnAllRanksAndDirectsAreThoseOfOrdered) {
  for (const std::string transport : {"shm", "tcp"})
    for (const int p : {1, 2, 3, 5, 7})
      for (const std::size_t count : {1, 7, 100, 1000, 10'007}) {
        expect_same_bits<float>(p, count, transport, ReduceOp::sum);
        if (count != 1000) continue;
        expect_same_bits<float>(p, count, transport, ReduceOp::mean);
        expect_same_bits<double>(p, count, transport, ReduceOp::product);
        expect_same_bits<Float16>(p, count, transport, ReduceOp::sum);
        expect_same_bits<BFloat16>(p, count, transport, ReduceOp::mean);
      }
}

TEST(Bits, DoNotDependOnHowTheBufferIsCut) {
  constexpr std::size_t kCount = 5000;
  std::mutex mutex;
  std::set<std::string> results;
  for (const std::size_t piece : {std::size_t{5000}, std::size_t{1250}, std::size_t{1}})
    thread_world(
        3,
        [&](Communicator& comm) {
          auto values = noise<float>(kCount, comm.rank());
          for (std::size_t at = 0; at < kCount; at += piece)
            comm.all_reduce(std::span(values).subspan(at, std::min(piece, kCount - at)));
          const std::lock_guard lock(mutex);
          results.insert(bits(std::span<const float>(values)));
        },
        over("shm"), small_knobs());
  EXPECT_EQ(results.size(), 1U);
}

// Fault 31.
TEST_P(EveryTransport, NanAndInfinityReachAllRanksAlike) {
  std::mutex mutex;
  std::map<std::string, std::set<std::string>> results;
  run(3, [&](Communicator& comm) {
    for (const std::size_t count : {3, 3000})
      for (const ReduceOp op : all_reduce_ops())
        for (const Algorithm algorithm : collectives::algorithms_of(Op::all_reduce)) {
          std::vector<float> values(count, 1.0F);
          if (comm.rank() == 1) values[count / 2] = std::numeric_limits<float>::quiet_NaN();
          if (comm.rank() == 2) values[0] = std::numeric_limits<float>::infinity();
          comm.all_reduce(values, op, {.algorithm = algorithm, .timeout = {}});
          EXPECT_TRUE(std::isnan(values[count / 2])) << name_of(op) << " " << name_of(algorithm);
          EXPECT_EQ(std::isinf(values[0]), op != ReduceOp::min) << name_of(op);
          const std::lock_guard lock(mutex);
          results[fmt::format("{} {} {}", count, name_of(op), name_of(algorithm))].insert(
              bits(std::span<const float>(values)));
        }
  });
  for (const auto& [which, found] : results) EXPECT_EQ(found.size(), 1U) << which;
}

// --- mismatch: faults 9 and 10 ---

struct Disagreement {
  const char* name;
  std::function<void(Communicator&)> usual;
  std::function<void(Communicator&)> odd;
  const char* usual_text;
  const char* odd_text;
};

std::vector<Disagreement> disagreements() {
  static std::array<std::vector<float>, 16> memory;  // by rank; never read
  const auto floats = [](Communicator& comm, std::size_t count) {
    auto& mine = memory[static_cast<std::size_t>(comm.rank())];
    mine.resize(std::max(mine.size(), std::size_t{100'000}));
    return std::span(mine).first(count);
  };
  const auto all_reduce = [=](Communicator& comm) { comm.all_reduce(floats(comm, 1000)); };
  return {
      {"op", all_reduce, [](Communicator& comm) { comm.barrier(); }, "all_reduce 2", "barrier 2"},
      {"count", all_reduce, [=](Communicator& comm) { comm.all_reduce(floats(comm, 1001)); }, "1000 elements",
       "1001 elements"},
      {"small_and_large", all_reduce, [=](Communicator& comm) { comm.all_reduce(floats(comm, 2)); }, "1000 elements",
       "2 elements"},
      {"dtype", all_reduce,
       [](Communicator& comm) {
         std::vector<std::int32_t> ints(1000);
         comm.all_reduce(ints);
       },
       "float32", "int32"},
      {"reduce_op", all_reduce, [=](Communicator& comm) { comm.all_reduce(floats(comm, 1000), ReduceOp::max); }, "sum",
       "max"},
      {"algorithm",
       [=](Communicator& comm) {
         comm.all_reduce(floats(comm, 1000), ReduceOp::sum, {Algorithm::ring, {}});
       },
       [=](Communicator& comm) {
         comm.all_reduce(floats(comm, 1000), ReduceOp::sum, {Algorithm::tree, {}});
       },
       "algorithm ring", "algorithm tree"},
      {"automatic_and_chosen", all_reduce,
       [=](Communicator& comm) {
         comm.all_reduce(floats(comm, 1000), ReduceOp::sum, {Algorithm::naive, {}});
       },
       "algorithm auto", "algorithm naive"},
      {"root", [=](Communicator& comm) { comm.broadcast(floats(comm, 1000), 0); },
       [=](Communicator& comm) { comm.broadcast(floats(comm, 1000), 1); }, "", "root 1"},
      {"everyone_receives",
       [=](Communicator& comm) {
         comm.broadcast(floats(comm, 1000), comm.rank() == 0 ? 1 : 0, {Algorithm::naive, {}});
       },
       [=](Communicator& comm) {
         comm.broadcast(floats(comm, 1000), 0, {Algorithm::naive, {}});
       },
       "root 1", "root 0"},
      {"everyone_sends",
       [=](Communicator& comm) {
         comm.broadcast(floats(comm, 10), comm.rank(), {Algorithm::naive, {}});
       },
       [=](Communicator& comm) {
         comm.broadcast(floats(comm, 10), comm.rank(), {Algorithm::naive, {}});
       },
       "", ""},
  };
}

TEST_P(EveryTransport, RanksThatDisagreeAllFindOutAndNameBothSides) {
  for (const int p : {2, 4})
    for (const Disagreement& d : disagreements()) {
      SCOPED_TRACE(fmt::format("{}, {} ranks", d.name, p));
      std::atomic<int> mismatches{0};
      std::mutex mutex;
      std::string all_texts;
      const auto started = Clock::now();
      try {
        run(p, [&](Communicator& comm) {
          try {
            comm.barrier();
            (comm.rank() == p - 1 ? d.odd : d.usual)(comm);
            comm.barrier();  // at the latest in their next call
            comm.barrier();
            ADD_FAILURE() << "rank " << comm.rank() << " noticed nothing";
          } catch (const Mismatch& mismatch) {
            ++mismatches;
            const std::lock_guard lock(mutex);
            all_texts += mismatch.what();
            all_texts += '\n';
            throw;
          } catch (const Error& error) {
            ADD_FAILURE() << "rank " << comm.rank() << ": not a mismatch: " << error.what();
            throw;
          }
        });
        ADD_FAILURE() << "no error";
      } catch (const Mismatch& mismatch) {
        const std::string text = mismatch.what();
        EXPECT_NE(text.find(d.usual_text), std::string::npos) << text;
        EXPECT_NE(text.find(d.odd_text), std::string::npos) << text;
      }
      EXPECT_EQ(mismatches, p) << all_texts;
      EXPECT_LT(Clock::now() - started, 10s);
    }
}

TEST_P(EveryTransport, AMismatchLeavesTheLastCollectivesInAFile) {
  try {
    run(2, [&](Communicator& comm) {
      for (int i = 0; i < 300; ++i) comm.barrier();
      std::vector<float> x(comm.rank() == 0 ? 8 : 9);
      comm.all_reduce(x);
    });
    FAIL() << "no error";
  } catch (const Mismatch& mismatch) {
    const std::string text = mismatch.what();
    const auto at = text.find(::testing::TempDir());
    ASSERT_NE(at, std::string::npos) << text;
    const std::string path = text.substr(at, text.find_first_of("; ", at) - at);
    std::ifstream file(path);
    std::stringstream content;
    content << file.rdbuf();
    EXPECT_NE(content.str().find("The last 256 collectives"), std::string::npos) << path << content.str();
    EXPECT_NE(content.str().find("all_reduce 301"), std::string::npos);
    EXPECT_NE(content.str().find("barrier 300"), std::string::npos);
    EXPECT_EQ(content.str().find("barrier 45 "), std::string::npos);  // 301 - 256: no longer there
    EXPECT_NE(content.str().find("barrier 46 "), std::string::npos);
  }
}

// --- delay and death ---

TEST_P(EveryTransport, ATimeoutNamesWhoIsLateAndWhereEveryoneIs) {
  comm::Options options = small_knobs();
  options.timeout = 600ms;
  std::atomic<int> timeouts{0};
  std::string text;
  try {
    run(
        3,
        [&](Communicator& comm) {
          comm.barrier();
          // Late until somebody has given up, however busy the machine is.
          for (int i = 0; comm.rank() == 2 && timeouts == 0 && i < 600; ++i) std::this_thread::sleep_for(100ms);
          try {
            std::vector<float> x(4);
            comm.all_reduce(x);
          } catch (const TimedOut&) {
            ++timeouts;
            throw;
          }
        },
        options);
  } catch (const TimedOut& late) {
    text = late.what();
  }
  EXPECT_GE(timeouts, 1);
  EXPECT_NE(text.find("all_reduce 2 (float32, 4 elements, sum, algorithm auto) timed out after 0.6 s"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("rank 2 was last seen in collective 1"), std::string::npos) << text;
  EXPECT_NE(text.find("last collectives are in " + ::testing::TempDir()), std::string::npos) << text;
}

TEST_P(EveryTransport, AMessageThatIsLateHasTheTagThatTheProgramGave) {
  transport::Options options = over(GetParam());
  options.timeout = 2s;
  const auto late = [](Communicator& comm) {
    if (comm.rank() == 1) return comm.barrier();
    std::vector<float> x(2);
    try {
      comm.recv(1, x, 5);
      ADD_FAILURE() << "nobody has sent anything";
    } catch (const TimedOut& error) {
      EXPECT_EQ(error.facts().tag, 5U);
      EXPECT_NE(std::string(error.what()).find("recv of 8 bytes from rank 1, tag 5 "), std::string::npos)
          << error.what();
    }
    comm.barrier();
  };
  thread_world(2, late, options, small_knobs());
}

// Fault 6.
TEST_P(EveryTransport, ADelayShorterThanTheDeadlineIsOneWarning) {
  comm::Options options = small_knobs();
  options.first_warning = 300ms;
  ::testing::internal::CaptureStderr();
  run(
      2,
      [&](Communicator& comm) {
        if (comm.rank() == 1) std::this_thread::sleep_for(800ms);
        std::vector<float> x{1.0F};
        comm.all_reduce(x);
        EXPECT_EQ(x[0], 2.0F);
      },
      options);
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("rank 0 has waited 0 s for rank 1 in all_reduce 1"), std::string::npos) << said;
  EXPECT_EQ(said.find("has waited"), said.rfind("has waited")) << said;
}

// Fault 4.
TEST_P(EveryTransport, ARankThatLeavesEarlyIsNamedWithItsLastCollective) {
  std::atomic<int> found{0};
  EXPECT_THROW(run(3,
                   [&](Communicator& comm) {
                     for (int i = 0; i < 5; ++i) comm.barrier();
                     if (comm.rank() == 1) return;
                     try {
                       std::vector<float> x(4);
                       comm.all_reduce(x);
                     } catch (const PeerDied& died) {
                       const std::string text = died.what();
                       EXPECT_NE(text.find("rank 1 left after collective 5"), std::string::npos) << text;
                       EXPECT_NE(text.find("stopped in all_reduce 6"), std::string::npos) << text;
                       EXPECT_EQ(died.peer(), 1);
                       EXPECT_EQ(died.kind(), Error::Kind::peer_died);
                       EXPECT_EQ(died.facts().rank, comm.rank());
                       EXPECT_EQ(died.facts().operation.substr(0, 12), "all_reduce 6");
                       EXPECT_EQ(died.facts().message, "rank 1 left after collective 5");
                       ++found;
                       throw;
                     }
                   }),
               PeerDied);
  EXPECT_GE(found, 1);
}

// It catches its own error and leaves at once: what the others hear is the error, not that it left.
TEST_P(EveryTransport, AFarewellDoesNotOvertakeAnAbort) {
  for (int round = 0; round < 15; ++round) {
    std::atomic<int> found{0};
    EXPECT_THROW(run(3,
                     [&](Communicator& comm) {
                       Communicator second = comm.duplicate();
                       try {
                         for (int i = 0; i < 3; ++i) second.barrier();  // may still be under way when rank 1 is done
                         if (comm.rank() == 1) return second.abort("no gradient for layer7.weight");
                         std::vector<float> x(4);
                         (comm.rank() == 0 ? second : comm).all_reduce(x);
                       } catch (const PeerDied& died) {
                         const std::string text = died.what();
                         EXPECT_NE(text.find("no gradient for layer7.weight"), std::string::npos) << text;
                         EXPECT_EQ(died.peer(), 1);
                         ++found;
                         throw;
                       }
                     }),
                 PeerDied);
    EXPECT_EQ(found, 2) << "round " << round;
  }
}

TEST_P(EveryTransport, AfterAnErrorEveryCallThrowsIt) {
  EXPECT_THROW(run(2,
                   [&](Communicator& comm) {
                     std::vector<float> x(comm.rank() == 0 ? 8 : 9);
                     EXPECT_THROW(comm.all_reduce(x), Mismatch);
                     EXPECT_THROW(comm.barrier(), Mismatch);
                     EXPECT_THROW(comm.all_reduce_async(x).wait(), Mismatch);
                     throw Mismatch("as expected");
                   }),
               Mismatch);
}

// --- works ---

TEST_P(EveryTransport, WorksRunInTheOrderTheyWereIssued) {
  run(3, [&](Communicator& comm) {
    std::vector<std::vector<float>> buffers;
    for (int i = 0; i < 50; ++i) buffers.emplace_back(1 + i * 10, 1.0F);
    std::vector<Work> works;
    for (auto& buffer : buffers) works.push_back(comm.all_reduce_async(buffer));
    std::vector<float> last{1.0F};
    comm.all_reduce(last);  // queues behind them
    EXPECT_EQ(last[0], 3.0F);
    for (std::size_t i = 0; i < works.size(); ++i) {
      EXPECT_TRUE(works[i].done());
      works[i].wait();
      for (const float x : buffers[i]) ASSERT_EQ(x, 3.0F);
    }
  });
}

TEST_P(EveryTransport, MessagesNeverWaitForACollective) {
  run(2, [&](Communicator& comm) {
    std::vector<float> x(1000, 1.0F);
    std::vector<float> message(100'000, 5.0F);
    if (comm.rank() == 0) {
      Work pending = comm.all_reduce_async(x);  // rank 1 does not come to it before it has the message
      comm.send(1, message, 7);
      pending.wait();
    } else {
      std::fill(message.begin(), message.end(), 0.0F);
      comm.recv(0, message, 7);
      EXPECT_EQ(message.back(), 5.0F);
      comm.all_reduce(x);
    }
    EXPECT_EQ(x[0], 2.0F);
  });
}

TEST_P(EveryTransport, ASendNeedsOnlyThatThePeerIsInSomeCall) {
  run(2, [&](Communicator& comm) {
    std::vector<float> message(1'000'000, 5.0F);
    if (comm.rank() == 0) {
      comm.send(1, message);
      comm.barrier();
    } else {
      std::vector<float> got(message.size());
      comm.barrier();
      comm.recv(0, got);
      EXPECT_TRUE(got == message);
    }
  });
}

// Fault 35.
TEST_P(EveryTransport, AWorkFailsWhenItsCommunicatorGoes) {
  std::vector<float> x(1000);
  std::vector<float> y(1000);
  Work running;
  Work waiting;
  EXPECT_THROW(run(2,
                   [&](Communicator& comm) {
                     if (comm.rank() == 1) {
                       std::this_thread::sleep_for(300ms);
                       throw Error("rank 1 has no part in it");
                     }
                     std::optional<Communicator> own(std::move(comm));
                     running = own->all_reduce_async(x);
                     waiting = own->all_reduce_async(y);
                     own.reset();
                     EXPECT_TRUE(running.done());
                     EXPECT_THROW(running.wait(), Error);
                     EXPECT_THROW(waiting.wait(), Error);
                     EXPECT_THROW(waiting.wait(), Error);
                   }),
               Error);
}

TEST_P(EveryTransport, CommunicatorsOfTwoThreadsDoNotMeet) {
  run(3, [&](Communicator& comm) {
    Communicator other = comm.duplicate();
    std::thread second([&] {
      for (int i = 0; i < 200; ++i) {
        std::vector<float> x(static_cast<std::size_t>(1 + i * 7), 2.0F);
        other.all_reduce(x);
        ASSERT_EQ(x.back(), 6.0F);
      }
    });
    for (int i = 0; i < 200; ++i) {
      std::vector<std::int32_t> x(static_cast<std::size_t>(1 + i), 1);
      comm.all_reduce(x);
      EXPECT_EQ(x[0], 3);
    }
    second.join();
  });
}

// --- groups ---

TEST_P(EveryTransport, SplitMakesGroupsByColorAndKey) {
  run(7, [&](Communicator& comm) {
    // Ranks 0 2 4 6 and 1 3 5, the latter in reverse order.
    const bool odd = comm.rank() % 2 == 1;
    auto group = comm.split(odd ? 1 : 0, odd ? -comm.rank() : 0);
    ASSERT_TRUE(group);
    EXPECT_EQ(group->size(), odd ? 3 : 4);
    EXPECT_EQ(group->rank(), odd ? (5 - comm.rank()) / 2 : comm.rank() / 2);
    std::vector<std::int32_t> ranks(static_cast<std::size_t>(group->size()));
    const std::vector<std::int32_t> mine{comm.rank()};
    group->all_gather(mine, ranks);
    EXPECT_EQ(ranks, odd ? (std::vector<std::int32_t>{5, 3, 1}) : (std::vector<std::int32_t>{0, 2, 4, 6}));
    std::vector<float> big(20'000, 1.0F);
    group->all_reduce(big);
    EXPECT_EQ(big[7], static_cast<float>(group->size()));
    // A group of a group, while the world goes on.
    auto pair = group->split(group->rank() / 2);
    std::vector<std::int32_t> x{1};
    pair->all_reduce(x);
    EXPECT_EQ(x[0], pair->size());
    comm.all_reduce(x);
  });
}

TEST_P(EveryTransport, ANegativeColorIsInNoGroup) {
  run(3, [&](Communicator& comm) {
    auto group = comm.split(comm.rank() == 1 ? -1 : 5);
    EXPECT_EQ(group.has_value(), comm.rank() != 1);
    if (group) group->barrier();
    auto again = comm.split(0);  // those that were in no group still count the same
    again->barrier();
  });
}

TEST_P(EveryTransport, NeighboursAndMessagesInAGroupUseItsRanks) {
  run(5, [&](Communicator& comm) {
    auto group = comm.split(comm.rank() == 2 ? 1 : 0);
    if (group->size() == 1) return;
    const std::vector<std::int32_t> mine{group->rank()};
    std::vector<std::int32_t> got(1);
    Work sent = group->send_async(group->next_rank(), mine, 3);
    group->recv(group->prev_rank(), got, 3);
    sent.wait();
    EXPECT_EQ(got[0], group->prev_rank());
  });
}

// --- the arena ---

TEST(Arena, BuffersAreZeroedAndKnownAndMayBeUsedInPart) {
  thread_world(
      3,
      [](Communicator& comm) {
        const auto memory = comm.allocate<float>(10'000);
        for (const float x : *memory) ASSERT_EQ(x, 0.0F);
        EXPECT_TRUE(comm.in_arena(memory->data()));
        EXPECT_TRUE(comm.in_arena(memory->data() + 9'999));
        float elsewhere = 0;
        EXPECT_FALSE(comm.in_arena(&elsewhere));
        std::fill(memory->begin(), memory->end(), 1.0F);
        comm.all_reduce(memory->subspan(17, 5'001));
        EXPECT_EQ((*memory)[16], 1.0F);
        EXPECT_EQ((*memory)[17], 3.0F);
        EXPECT_EQ((*memory)[5'017], 3.0F);
        EXPECT_EQ((*memory)[5'018], 1.0F);
      },
      over("shm"), small_knobs());
}

TEST(Arena, ARankFindsTheSamePlaceOnAllRanks) {
  thread_world(
      3,
      [](Communicator& comm) {
        const auto other = comm.allocate<std::int32_t>(10);
        const auto memory = comm.allocate<std::int32_t>(100);
        (*memory)[7] = 10 * comm.rank();
        comm.barrier();
        const auto places = comm.on_all_ranks(&(*memory)[7], sizeof(std::int32_t));
        ASSERT_EQ(places.size(), 3U);
        for (int rank = 0; rank < 3; ++rank) {
          EXPECT_EQ(*reinterpret_cast<const std::int32_t*>(places[index_of(rank)]), 10 * rank);
        }
        EXPECT_EQ(places[index_of(comm.rank())], reinterpret_cast<std::byte*>(&(*memory)[7]));
        EXPECT_TRUE(comm.on_all_ranks(&(*memory)[99], 5).empty());  // one byte too many
        const int elsewhere = 0;
        EXPECT_TRUE(comm.on_all_ranks(&elsewhere, sizeof elsewhere).empty());
        comm.barrier();
      },
      over("shm"), small_knobs());
}

TEST(Arena, RanksMayMixPrivateAndSharedAndDifferentBuffers) {
  thread_world(
      4,
      [](Communicator& comm) {
        const auto one = comm.allocate<float>(9'000);
        const auto two = comm.allocate<float>(9'000);
        std::vector<float> own(9'000);
        std::vector<float> part(9'000);
        const auto mine = static_cast<float>(comm.rank());
        // They travel in the post, in a slot, in a segment, and from memory to memory.
        for (const std::size_t count : {4, 20, 100, 300, 9'000})
          for (int round = 0; round < 4; ++round) {
            const int kind = (comm.rank() + round) % 4;
            const std::span<float> buffer = (kind == 0 ? *one : kind == 1 ? *two : std::span(own)).first(count);
            const std::span<float> quarter = std::span(part).first(count / 4);
            const auto refill = [&] { std::fill(buffer.begin(), buffer.end(), mine); };
            const auto expect = [&](std::span<const float> values, float value) {
              for (const float x : values) ASSERT_EQ(x, value) << count;
            };
            refill();
            comm.all_reduce(buffer);
            expect(buffer, 6.0F);
            refill();
            comm.broadcast(buffer, 2);
            expect(buffer, 2.0F);
            refill();
            comm.reduce(buffer, ReduceOp::sum, 1);
            if (comm.rank() == 1) expect(buffer, 6.0F);
            refill();
            comm.reduce_scatter(buffer, quarter);
            expect(quarter, 6.0F);
            comm.scatter(buffer, quarter, 3);
            expect(quarter, 3.0F);
            std::fill(quarter.begin(), quarter.end(), mine);
            refill();
            comm.all_gather(quarter, buffer);
            for (Rank rank = 0; rank < 4; ++rank)
              expect(buffer.subspan(count / 4 * static_cast<std::size_t>(rank), count / 4), static_cast<float>(rank));
            refill();
            comm.gather(quarter, comm.rank() == 2 ? buffer : std::span<float>(), 2);
            for (Rank rank = 0; comm.rank() == 2 && rank < 4; ++rank)
              expect(buffer.subspan(count / 4 * static_cast<std::size_t>(rank), count / 4), static_cast<float>(rank));
            std::fill(part.begin(), part.end(), mine);
            refill();
            comm.all_to_all(std::span<const float>(part).first(count), buffer);
            for (Rank rank = 0; rank < 4; ++rank)
              expect(buffer.subspan(count / 4 * static_cast<std::size_t>(rank), count / 4), static_cast<float>(rank));
          }
      },
      over("shm"), small_knobs());
}

TEST(Arena, ManyAllocationsComeAndGoInAnyOrder) {
  thread_world(
      3,
      [](Communicator& comm) {
        std::vector<std::shared_ptr<std::span<double>>> kept;
        for (int i = 0; i < 60; ++i) {
          auto memory = comm.allocate<double>(100 + static_cast<std::size_t>(i));
          (*memory)[0] = 1.0;
          comm.all_reduce(*memory);
          ASSERT_EQ((*memory)[0], 3.0);
          if (i % 3 == comm.rank()) kept.push_back(memory);  // each rank lets go of others
          if (kept.size() > 5) kept.erase(kept.begin() + comm.rank());
        }
      },
      over("shm"), small_knobs());
}

TEST(Arena, AMappingOutlivesItsCommunicator) {
  std::shared_ptr<std::span<float>> kept;
  thread_world(
      2,
      [&](Communicator& comm) {
        auto memory = comm.allocate<float>(1000);
        std::fill(memory->begin(), memory->end(), 4.0F);
        comm.barrier();
        if (comm.rank() == 0) kept = memory;
      },
      over("shm"), small_knobs());
  EXPECT_EQ((*kept)[999], 4.0F);
}

TEST_P(EveryTransport, RanksThatAllocateDifferentSizesFindOut) {
  EXPECT_THROW(run(2, [&](Communicator& comm) { comm.allocate<float>(comm.rank() == 0 ? 10 : 11); }), Mismatch);
}

TEST(Arena, WithoutSharedMemoryItIsPlainMemory) {
  thread_world(
      2,
      [](Communicator& comm) {
        const auto memory = comm.allocate<float>(100);
        EXPECT_FALSE(comm.in_arena(memory->data()));
        (*memory)[99] = 1.0F;
        comm.all_reduce(*memory);
        EXPECT_EQ((*memory)[99], 2.0F);
      },
      over("tcp"), small_knobs());
}

// --- what is asked for ---

TEST_P(EveryTransport, WrongUseIsAnErrorOfThisRankAndNothingHasHappened) {
  run(2, [&](Communicator& comm) {
    std::vector<float> x(4);
    std::vector<float> three(3);
    std::vector<double> doubles(2);
    std::vector<std::int32_t> ints(4);
    EXPECT_THROW(comm.broadcast(x, 2), UsageError);
    EXPECT_THROW(comm.broadcast(x, -1), UsageError);
    EXPECT_THROW(comm.all_reduce(ints, ReduceOp::mean), UsageError);
    EXPECT_THROW(comm.all_gather(three, x), UsageError);
    EXPECT_THROW(comm.all_gather(doubles, x), UsageError);
    EXPECT_THROW(comm.gather(x, three, comm.rank()), UsageError);
    EXPECT_THROW(comm.gather(x, three, -1), UsageError);
    EXPECT_THROW(comm.scatter(x, doubles, -1), UsageError);
    EXPECT_THROW(comm.all_to_all(three, three), UsageError);
    EXPECT_THROW(comm.all_reduce(Buffer(nullptr, 3, DType::float32)), UsageError);
    EXPECT_THROW(comm.send(comm.rank(), x), UsageError);
    EXPECT_THROW(comm.send(2, x), UsageError);
    EXPECT_THROW(comm.send(1 - comm.rank(), x, 65280), UsageError);
    EXPECT_THROW(comm.barrier({.algorithm = Algorithm::ring, .timeout = {}}), UsageError);
    std::fill(x.begin(), x.end(), 1.0F);
    comm.all_reduce(x);  // all is well
    EXPECT_EQ(x[3], 2.0F);
  });
}

TEST(Communicator, AWholeThatIsNotItsPartsIsSaid) {
  thread_world(3, [](Communicator& comm) {
    const std::vector<float> whole(1000);
    std::vector<float> part(333);
    try {
      comm.scatter(whole, part, comm.rank());
      FAIL() << "no error";
    } catch (const UsageError& error) {
      EXPECT_NE(std::string(error.what()).find("the whole has 1000 elements, but 3 parts of 333 elements are 999"),
                std::string::npos)
          << error.what();
    }
  });
}

TEST(Communicator, DirectWithoutSharedMemoryIsAnErrorWithAWayOut) {
  thread_world(
      2,
      [](Communicator& comm) {
        std::vector<float> x(4);
        try {
          comm.all_reduce(x, ReduceOp::sum, {.algorithm = Algorithm::direct, .timeout = {}});
          FAIL() << "no error";
        } catch (const UsageError& error) {
          EXPECT_NE(std::string(error.what()).find("LOCKSTEP_TRANSPORT=shm"), std::string::npos);
        }
      },
      over("tcp"));
}

TEST_P(EveryTransport, RankZerosAlgorithmIsEveryones) {
  // Each rank has options of its own here, as with a variable that is set on one rank only.
  thread_world(3, std::function<void(World&)>([&](World& world) {
                 comm::Options options = small_knobs();
                 if (world.rank() == 0) options.algorithm = Algorithm::ring;
                 if (world.rank() == 1) options.algorithm = Algorithm::tree;
                 Communicator comm(world, options);
                 std::vector<float> x(30, 1.0F);
                 comm.all_reduce(x);
                 EXPECT_EQ(x[29], 3.0F);
                 EXPECT_EQ(comm.choice(Op::all_reduce, 30, DType::float32), Algorithm::ring);
                 EXPECT_EQ(comm.traffic().messages, 4U);
               }),
               over(GetParam()));
}

TEST_P(EveryTransport, TrafficIsThatOfThePlans) {
  run(5, [&](Communicator& comm) {
    for (const Algorithm algorithm : collectives::algorithms_of(Op::all_reduce)) {
      std::vector<float> x(1237);
      const Traffic before = comm.traffic();
      comm.all_reduce(x, ReduceOp::sum, {.algorithm = algorithm, .timeout = {}});
      const auto cost =
          collectives::cost_of(collectives::make_plan(Op::all_reduce, algorithm, comm.rank(), comm.size()), x.size());
      EXPECT_EQ(comm.traffic().messages - before.messages, static_cast<std::uint64_t>(cost.messages));
      EXPECT_EQ(comm.traffic().bytes - before.bytes, cost.elements * sizeof(float));
    }
  });
}

TEST(Communicator, AWorldOfOneIsOrdinary) {
  thread_world(1, [](Communicator& comm) {
    EXPECT_EQ(comm.size(), 1);
    EXPECT_EQ(comm.next_rank(), 0);
    EXPECT_EQ(comm.transport(), "none");
    std::vector<float> x{3.0F};
    comm.all_reduce(x, ReduceOp::mean);
    EXPECT_EQ(x[0], 3.0F);
    EXPECT_THROW(comm.send(0, x), UsageError);
    auto group = comm.split(0);
    group->barrier();
    EXPECT_EQ(comm.allocate<float>(10)->size(), 10U);
  });
}

// --- what a hostile user does ---

TEST_P(EveryTransport, BuffersThatOverlapWhereTheyMustNotAreRefused) {
  run(2, [&](Communicator& comm) {
    std::vector<float> x(8, 1.0F);
    EXPECT_THROW(comm.all_to_all(x, x), UsageError);
    const Rank other = 1 - comm.rank();
    EXPECT_THROW(comm.all_gather(std::span(x).subspan(static_cast<std::size_t>(other) * 4, 4), x), UsageError);
    // In its own place it may lie.
    const auto mine = std::span(x).subspan(static_cast<std::size_t>(comm.rank()) * 4, 4);
    std::fill(mine.begin(), mine.end(), static_cast<float>(comm.rank()));
    comm.all_gather(mine, x);
    EXPECT_EQ(x, (std::vector<float>{0, 0, 0, 0, 1, 1, 1, 1}));
    comm.reduce_scatter(x, mine);
    EXPECT_EQ(mine[0], 2.0F * static_cast<float>(comm.rank()));
  });
}

TEST_P(EveryTransport, CommunicatorsOfTheWorldAgreeAfterUnequalSplits) {
  thread_world(3, std::function<void(World&)>([&](World& world) {
                 Communicator comm(world, small_knobs());
                 auto group = comm.split(world.rank() == 2 ? 1 : 0);
                 if (world.rank() != 2) group->split(0)->barrier();
                 Communicator second(world, small_knobs());
                 second.barrier();
               }),
               over(GetParam()));
}

TEST_P(EveryTransport, TextsNameRanksOfTheWorld) {
  std::mutex mutex;
  std::string texts;
  EXPECT_THROW(run(4,
                   [&](Communicator& comm) {
                     try {
                       auto group = comm.split(comm.rank() % 2);
                       if (comm.rank() == 1) group->barrier();
                       std::vector<float> x(4);
                       if (comm.rank() == 3) group->all_reduce(x);
                       comm.barrier();
                     } catch (const Error& error) {
                       const std::lock_guard lock(mutex);
                       texts += error.what();
                       throw;
                     }
                   }),
               Mismatch);
  EXPECT_TRUE(texts.find("rank 1 calls barrier 1") != std::string::npos &&
              texts.find("rank 3 calls all_reduce 1") != std::string::npos)
      << texts;
  EXPECT_EQ(texts.find("rank 0 calls"), std::string::npos) << texts;
}

TEST_P(EveryTransport, AFarewellEndsTheWaitForTheOneWhoLeft) {
  const auto started = Clock::now();
  EXPECT_THROW(run(2,
                   [&](Communicator& comm) {
                     std::optional<Communicator> other(comm.duplicate());
                     if (comm.rank() == 1) {
                       other.reset();
                       std::this_thread::sleep_for(2s);  // its world lives on
                     } else {
                       other->barrier();
                     }
                   }),
               PeerDied);
  EXPECT_LT(Clock::now() - started, 10s);
}

TEST_P(EveryTransport, AnAlgorithmForAllCallsCountsWhereAnOpHasIt) {
  for (const Algorithm algorithm : {Algorithm::ring, Algorithm::ordered, Algorithm::exchange}) {
    comm::Options options = small_knobs();
    options.algorithm = algorithm;
    run(
        3,
        [&](Communicator& comm) {
          comm.barrier();
          const auto memory = comm.allocate<float>(100);
          (*memory)[0] = 1.0F;
          comm.all_reduce(*memory);
          EXPECT_EQ((*memory)[0], 3.0F);
          EXPECT_GT(comm.traffic().messages, 0U);
          comm.duplicate().barrier();
        },
        options);
  }
}

TEST_P(EveryTransport, TooMuchMemoryIsRefused) {
  run(2, [&](Communicator& comm) {
    EXPECT_THROW(comm.allocate<double>((std::size_t{1} << 61) + 1), UsageError);
    EXPECT_THROW(comm.allocate_bytes(~std::size_t{0}), UsageError);
    comm.barrier();
  });
}

// By messages, more than 4 MB are summed in slices, of which the last one is smaller.
TEST(Communicator, AnAllReduceOfManySlicesIsRight) {
  thread_world(
      3,
      [](Communicator& comm) {
        std::vector<float> x(2'500'001);
        for (const Algorithm algorithm : {Algorithm::automatic, Algorithm::ring, Algorithm::exchange}) {
          for (std::size_t i = 0; i < x.size(); ++i)
            x[i] = static_cast<float>(i % 1009) + static_cast<float>(comm.rank());
          comm.all_reduce(x, ReduceOp::sum, {.algorithm = algorithm, .timeout = {}});
          for (std::size_t i = 0; i < x.size(); ++i) ASSERT_EQ(x[i], static_cast<float>(i % 1009 * 3 + 3)) << i;
        }
      },
      over("tcp"), comm::Options());
}

TEST(Communicator, TinyKnobsStillGiveRightNumbers) {
  transport::Options queue = over("shm");
  queue.shm_copy = transport::ShmCopy::queue;
  for (const std::size_t bytes : {0, 1, 16, 100}) {
    comm::Options options = small_knobs();
    options.segment_bytes = options.small_bytes = bytes;
    thread_world(
        4,
        [](Communicator& comm) {
          std::vector<float> x(3001, 1.0F);
          comm.all_reduce(x);
          for (const float value : x) ASSERT_EQ(value, 4.0F);
        },
        queue, options);
  }
}

TEST_P(EveryTransport, AForkedChildGetsAnErrorAndDoesNotHang) {
  std::atomic<bool> ended{false};
  run(2, [&](Communicator& comm) {
    std::vector<float> x(10, 1.0F);
    comm.all_reduce_async(x).wait();  // there is a thread now, which a child has not
    if (comm.rank() == 0) {
      Work pending = comm.barrier_async();  // rank 1 does not come before the child has ended
      const pid_t child = ::fork();
      if (child == 0) {
        ::alarm(10);
        int code = 1;
        try {
          comm.barrier();
        } catch (const UsageError&) {
          code = 0;
        }
        try {
          pending.wait();  // its thread is the parent's
          code = 2;
        } catch (const UsageError&) {
        }
        { const Communicator gone(std::move(comm)); }  // its destructor must not wait for the thread
        ::_exit(code);
      }
      int status = -1;
      ::waitpid(child, &status, 0);
      EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
      ended = true;
      ended.notify_all();
      pending.wait();
    } else {
      ended.wait(false);
      comm.barrier();
    }
    comm.barrier();
  });
}

// --- the trace ---

TEST_P(EveryTransport, TheTraceHasTheSpansOfAllRanksOnOneClock) {
  comm::Options options = small_knobs();
  options.trace_file = ::testing::TempDir() + "/trace-" + GetParam() + ".json";
  run(
      3,
      [&](Communicator& comm) {
        std::vector<float> x(100);
        comm.all_reduce(x);
        Work a = comm.all_reduce_async(x);
        Work b = comm.barrier_async();
        a.wait();
        b.wait();
      },
      options);
  std::ifstream file(options.trace_file);
  const auto json = nlohmann::json::parse(file);
  std::map<int, std::map<std::string, int>> names;
  std::map<int, std::set<std::string>> algorithms;
  double last_start = 0;
  double first_end = 1e12;
  for (const auto& event : json["traceEvents"]) {
    if (event["ph"] != "X") continue;
    ++names[event["pid"].get<int>()][event["cat"].get<std::string>() + " " + event["name"].get<std::string>()];
    if (event["cat"] == "collective")
      algorithms[event["pid"].get<int>()].insert(event["args"]["algorithm"].get<std::string>());
    if (event["cat"] == "collective" && event["args"]["sequence"] == 1) {
      last_start = std::max(last_start, event["ts"].get<double>());
      first_end = std::min(first_end, event["ts"].get<double>() + event["dur"].get<double>());
    }
  }
  ASSERT_EQ(names.size(), 3U);
  for (auto& [rank, found] : names) {
    EXPECT_EQ(found["collective all_reduce"], 2) << rank;
    EXPECT_EQ(found["collective barrier"], 1) << rank;
    EXPECT_EQ(found["work all_reduce"], 1) << rank;
    EXPECT_EQ(found["wait wait"], 2) << rank;
    EXPECT_EQ(algorithms[rank], (std::set<std::string>{GetParam() == "shm" ? "direct" : "tree",
                                                       GetParam() == "shm" ? "direct" : "halving_doubling"}));
  }
  // Nobody leaves an all-reduce before the last has come, and the ranks have the same clock, however busy it is here.
  EXPECT_GT(first_end, last_start);
}

}  // namespace
}  // namespace lockstep
