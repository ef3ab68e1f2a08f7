// What ranks compare when they leave a communicator.
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "lockstep/communicator.h"
#include "lockstep/error.h"

namespace lockstep {
namespace {

// What the world of these ranks ends with; empty when all is well.
std::string end_of_world(int ranks, const char* transport, const std::function<void(Communicator&)>& body) {
  transport::Options options;
  options.kind = parse_transport(transport);
  try {
    thread_world(ranks, body, options);
    return "";
  } catch (const std::exception& error) {
    return error.what();
  }
}

bool has(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }

TEST(Leaving, RanksThatOnlySendInTheirLastCollectiveAreCompared) {
  // Each takes itself for the root and only sends.
  for (const char* transport : {"shm", "tcp"}) {
    const std::string end = end_of_world(2, transport, [](Communicator& comm) {
      comm.barrier();
      float x[2] = {1, 2};
      comm.broadcast({x, 2, DType::float32}, comm.rank(), {.algorithm = Algorithm::tree, .timeout = {}});
    });
    EXPECT_TRUE(has(end, "ranks disagree: the last collective of rank ")) << end;
    EXPECT_TRUE(has(end, "was broadcast 2 (float32, 2 elements, root 0")) << end;
    EXPECT_TRUE(has(end, "was broadcast 2 (float32, 2 elements, root 1")) << end;
  }
}

TEST(Leaving, ACollectiveThatOneRankAloneHasCalledIsFound) {
  const std::string end = end_of_world(3, "tcp", [](Communicator& comm) {
    comm.barrier();
    float x = 1;
    if (comm.rank() == 1) comm.broadcast({&x, 1, DType::float32}, 1);
  });
  // Rank 1 may also find the others gone when it sends.
  EXPECT_TRUE(has(end, "was barrier 1") || has(end, "left after collective 1")) << end;
  EXPECT_TRUE(has(end, " broadcast 2 ")) << end;
}

TEST(Leaving, AGroupIsComparedByItself) {
  // The groups {0, 2} and {1, 3} call different things; only the second disagrees within itself.
  const auto calls = [](bool wrong) {
    return [wrong](Communicator& comm) {
      auto group = *comm.split(comm.rank() % 2, comm.rank());
      float x = 1;
      if (comm.rank() % 2 == 0) group.all_reduce({&x, 1, DType::float32});
      if (comm.rank() == 3 && wrong) group.broadcast({&x, 1, DType::float32}, 1);
    };
  };
  EXPECT_EQ(end_of_world(4, "tcp", calls(false)), "");
  const std::string end = end_of_world(4, "tcp", calls(true));
  EXPECT_TRUE(has(end, "rank 1 was none at all") || has(end, "rank 1 left after collective 0")) << end;
  EXPECT_TRUE(has(end, " broadcast 1 ")) << end;
}

TEST(Leaving, ManyCommunicatorsLeaveNothingInTheStore) {
  EXPECT_EQ(end_of_world(2, "tcp",
                         [](Communicator& comm) {
                           for (int i = 0; i < 100; ++i) comm.duplicate().barrier();
                         }),
            "");
}

}  // namespace
}  // namespace lockstep
