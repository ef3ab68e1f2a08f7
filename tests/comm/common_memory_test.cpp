// Memory that is one for all ranks, and what a work tells when it is done.
#include <gtest/gtest.h>

#include <numeric>

#include "lockstep/base/error.h"
#include "lockstep/comm/communicator.h"

namespace lockstep {
namespace {

transport::Options over(const char* kind) {
  transport::Options options;
  options.kind = kind;
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
