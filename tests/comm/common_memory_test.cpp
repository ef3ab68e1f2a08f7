// Memory that is one for all ranks, and what a work tells when it is done.
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "lockstep/base/clock.h"
#include "lockstep/communicator.h"
#include "lockstep/error.h"

namespace lockstep {
namespace {

transport::Options over(const char* kind) {
  transport::Options options;
  options.kind = parse_transport(kind);
  return options;
}

TEST(CommonMemory, IsTheSameOnAllRanksAndOutlivesTheCommunicator) {
  for (const int ranks : {1, 2, 3, 5})
    thread_world(
        ranks,
        [](Communicator& comm) {
          std::shared_ptr<Bytes> memory;
          {
            Communicator own = comm.duplicate();
            memory = own.allocate_common(4096);
            EXPECT_EQ(std::accumulate(memory->begin(), memory->end(), 0,
                                      [](int sum, std::byte b) { return sum + static_cast<int>(b); }),
                      0);
            own.barrier();  // everyone has looked
            (*memory)[static_cast<std::size_t>(comm.rank())] = static_cast<std::byte>(comm.rank() + 1);
            own.barrier();
          }
          for (Rank rank = 0; rank < comm.size(); ++rank)
            EXPECT_EQ((*memory)[static_cast<std::size_t>(rank)], static_cast<std::byte>(rank + 1));
        },
        over("shm"));
}

TEST(CommonMemory, RanksThatDisagreeOrShareNothingAreTold) {
  EXPECT_THROW(thread_world(
                   2, [](Communicator& comm) { comm.allocate_common(comm.rank() == 0 ? 64 : 128); }, over("shm")),
               Mismatch);
  try {
    thread_world(
        2, [](Communicator& comm) { comm.allocate_common(64); }, over("tcp"));
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_NE(std::string(error.what()).find("these ranks share none (transport tcp)"), std::string::npos)
        << error.what();
  }
}

// What each of two ranks calls, and parts of what both are told at once.
void expect_disagreement(const std::function<void(Communicator&)>& first,
                         const std::function<void(Communicator&)>& second, const std::vector<std::string>& parts) {
  for (const char* kind : {"shm", "tcp"}) {
    std::atomic<int> told = 0;
    const auto began = Clock::now();
    const auto body = [&](Communicator& comm) {
      try {
        comm.rank() == 0 ? first(comm) : second(comm);
        comm.barrier();
      } catch (const Mismatch& error) {
        const std::string text = error.what();
        for (const std::string& part : parts)
          EXPECT_NE(text.find(part), std::string::npos) << kind << ": " << text << "\nlacks " << part;
        ++told;
        throw;
      }
    };
    EXPECT_THROW(thread_world(2, body, over(kind)), Mismatch);
    EXPECT_EQ(told, 2) << kind;
    EXPECT_LT(Clock::now() - began, 20s) << kind << ": they waited for each other";
  }
}

TEST(Fingerprint, AllocationsOfTwoKindsAndCollectivesAreToldApart) {
  const auto gather = [](Communicator& comm) {
    const std::int64_t mine = 64;
    std::vector<std::int64_t> all(2);
    comm.all_gather(ConstBuffer(&mine, 1, DType::int64), Buffer(all.data(), all.size(), DType::int64));
  };
  const auto allocate = [](Communicator& comm) { comm.allocate_bytes(64); };
  const auto common = [](Communicator& comm) { comm.allocate_common(64); };
  expect_disagreement(allocate, common, {"calls allocate 1", "calls allocate_common 1"});
  expect_disagreement(gather, allocate, {"calls all_gather 1 (int64, 2 elements", "calls allocate 1"});
  expect_disagreement(common, gather, {"calls allocate_common 1", "calls all_gather 1"});
}

TEST(Fingerprint, TheStepIsPartOfIt) {
  const auto sum_in_step = [](std::uint32_t step) {
    return [step](Communicator& comm) {
      comm.begin_step(step);
      std::vector<float> x(10, 1.0F);
      comm.all_reduce(x);
    };
  };
  expect_disagreement(sum_in_step(7), sum_in_step(8), {"of step 7", "of step 8", "left out a backward"});
  expect_disagreement(sum_in_step(0), sum_in_step(8), {"of step 8", "left out a backward"});
  // Steps count modulo 2^24, and the largest leaves the sequence number alone.
  thread_world(3, [&](Communicator& comm) {
    std::vector<float> x(5, 1.0F);
    for (const std::uint32_t step : {0xff'ffffU, 0x100'0000U, 0x100'0001U}) {
      comm.begin_step(step);
      Work work = comm.all_reduce_async(x);
      comm.begin_step(step + 1);  // the work belongs to the step in which it was called
      work.wait();
      comm.all_reduce(x);
    }
    EXPECT_EQ(x[0], 729.0F);
  });
}

TEST(Work, TellsWhenItRanAndEndsWithWhatFollows) {
  thread_world(2, [](Communicator& comm) {
    std::vector<float> x(1000, 1.0F);
    const auto before = Clock::now();
    int finished = 0;
    Work work = then(comm.all_reduce_async(x), [&] {
      ++finished;
      x[0] *= 10;
    });
    work.wait();
    work.wait();
    EXPECT_EQ(finished, 1);
    EXPECT_EQ(x[0], 20.0F);
    EXPECT_TRUE(work.done());
    EXPECT_GE(work.times().began, before);
    EXPECT_GE(work.times().ended, work.times().began);
    EXPECT_LE(work.times().ended, Clock::now());
    EXPECT_EQ(Work().times().began, Clock::time_point());
  });
}

}  // namespace
}  // namespace lockstep
