// Which communicator it is, in errors and between ranks.
#include <gmock/gmock.h>

#include <atomic>
#include <mutex>

#include "lockstep/base/clock.h"
#include "lockstep/communicator.h"
#include "lockstep/error.h"

namespace lockstep {
namespace {

using namespace std::chrono_literals;
using testing::AllOf;
using testing::Each;
using testing::HasSubstr;

// What each rank's body threw.
std::vector<std::string> errors_of(int ranks, const std::function<void(Communicator&)>& body, Duration timeout = 30s) {
  std::vector<std::string> texts(static_cast<std::size_t>(ranks));
  comm::Options options;
  options.timeout = timeout;
  try {
    thread_world(
        ranks,
        [&](Communicator& comm) {
          try {
            body(comm);
          } catch (const std::exception& error) {
            texts[static_cast<std::size_t>(comm.rank())] = error.what();
            throw;
          }
        },
        {}, options);
  } catch (const std::exception&) {  // the texts are there
  }
  return texts;
}

TEST(CommunicatorNames, GroupsThatAreMadeInAnotherOrderOnOneRankAreNoticed) {
  const auto texts = errors_of(3, [](Communicator& comm) {
    const bool other = comm.rank() == 1;
    const Communicator first = comm.duplicate(other ? "critic" : "generator");
    const Communicator second = comm.duplicate(other ? "generator" : "critic");
  });
  EXPECT_THAT(texts, Each(AllOf(HasSubstr("ranks disagree: rank "), HasSubstr("makes the communicator '"),
                                HasSubstr("'generator'"), HasSubstr("'critic'"))));
}

TEST(CommunicatorNames, AnErrorSaysWhichCommunicatorItIs) {
  const auto texts = errors_of(2, [](Communicator& comm) {
    Communicator mine = comm.duplicate("for the critic");
    std::vector<float> x(static_cast<std::size_t>(5 + comm.rank()));
    mine.all_reduce(x);
  });
  EXPECT_THAT(texts, Each(AllOf(HasSubstr("algorithm auto) in communicator 2"),
                                HasSubstr("; communicator 2 is for the critic"))));
}

TEST(CommunicatorNames, OneWithoutANameSaysWhoMadeIt) {
  const auto texts = errors_of(2, [](Communicator& comm) {
    Communicator mine = comm.duplicate();
    std::vector<float> x(static_cast<std::size_t>(5 + comm.rank()));
    mine.all_reduce(x);
  });
  EXPECT_THAT(texts, Each(HasSubstr("; communicator 2 is a duplicate of communicator 1")));
}

// Each waits for the other in another communicator.
TEST(CommunicatorNames, OppositeOrderNamesBothCommunicators) {
  const auto texts = errors_of(
      2,
      [](Communicator& comm) {
        Communicator first = comm.duplicate("one"), second = comm.duplicate("two");
        (comm.rank() == 0 ? first : second).barrier();
        (comm.rank() == 0 ? second : first).barrier();
      },
      3s);
  EXPECT_THAT(texts[0] + texts[1], AllOf(HasSubstr("communicator 2 is one"), HasSubstr("communicator 3 is two")));
}

TEST(CommunicatorNames, LongNamesAreCut) {
  thread_world(2, [](Communicator& comm) {
    Communicator mine = comm.duplicate(std::string(500, 'x'));
    mine.barrier();
  });
}

}  // namespace
}  // namespace lockstep
