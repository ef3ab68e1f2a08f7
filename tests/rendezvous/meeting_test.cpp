#include "lockstep/rendezvous/meeting.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <thread>
#include <vector>

#include "lockstep/base/clock.h"
#include "lockstep/error.h"
#include "lockstep/rendezvous/socket.h"

namespace lockstep::rendezvous {
namespace {

Identity identity(Rank rank, int size) {
  Identity result;
  result.rank = rank;
  result.size = size;
  return result;
}

Place place_at(const Address& address, bool serve) {
  Place place;
  place.address = address;
  place.serve = serve;
  place.check_uid = address.is_unix();
  return place;
}

Address private_name(const char* test) {
  return Address::unix_socket("@lockstep-test-" + std::to_string(::getpid()) + "-" + test);
}

TEST(Meeting, AllLearnWhoIsThereAndWhoSharesTheirHost) {
  constexpr int kRanks = 5;
  const Address address = private_name("all");
  std::vector<std::thread> ranks;
  for (Rank rank = kRanks - 1; rank >= 0; --rank)  // the one that serves comes last
    ranks.emplace_back([&, rank] {
      Meeting meeting(identity(rank, kRanks), place_at(address, rank == 0), 20s);
      EXPECT_EQ(meeting.peers().size(), static_cast<std::size_t>(kRanks));
      EXPECT_EQ(meeting.peers()[3].pid, ::getpid());
      EXPECT_EQ(meeting.peers()[3].host, host_identity());
      EXPECT_TRUE(meeting.all_on_one_host());
      const auto texts = meeting.exchange("colour", "c" + std::to_string(rank));
      EXPECT_EQ(texts, (std::vector<std::string>{"c0", "c1", "c2", "c3", "c4"}));
      meeting.barrier("end");
    });
  for (auto& rank : ranks) rank.join();
}

TEST(Meeting, TheMissingAreNamed) {
  const Address address = private_name("missing");
  std::vector<std::thread> ranks;
  for (const Rank rank : {0, 1, 3})
    ranks.emplace_back([&, rank] {
      try {
        Meeting meeting(identity(rank, 4), place_at(address, rank == 0), 500ms);
        ADD_FAILURE() << "rank " << rank << " met somebody who is not there";
      } catch (const TimedOut& error) {
        EXPECT_NE(std::string(error.what()).find("3 of 4 ranks came within 0.5 s, missing: 2"), std::string::npos)
            << error.what();
        EXPECT_EQ(error.exit_code(), kExitTimedOut);
      } catch (const Error& error) {
        EXPECT_NE(rank, 0) << error.what();  // rank 0 served and gave up first: the others lost the store
      }
    });
  for (auto& rank : ranks) rank.join();
}

TEST(Meeting, AWorldOfOneNeedsNoStore) {
  Meeting meeting(identity(0, 1), Place{}, 1s);
  EXPECT_EQ(meeting.exchange("x", "mine"), std::vector<std::string>{"mine"});
  meeting.barrier("x");
  meeting.report("error", "nobody hears it");
  EXPECT_EQ(meeting.fate_of(0, 10ms), "");
}

TEST(Meeting, ASecondRankZeroIsTurnedAway) {
  const Address address = private_name("twice");
  StoreServer::Options options;
  options.address = address;
  const StoreServer first(options);
  try {
    Meeting second(identity(0, 2), place_at(address, true), 1s);
    FAIL() << "two rank 0 on one name";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("LOCKSTEP_JOB"), std::string::npos) << error.what();
  }
}

// Fault 23: the socket file of a run that crashed does not keep the next one out; a live one does.
TEST(Meeting, ALeftOverSocketFileIsReplaced) {
  const std::string path = ::testing::TempDir() + "lockstep-left-over-" + std::to_string(::getpid());
  const Address address = Address::unix_socket(path);
  { const Listener crashed = listen_on(address); }  // closed, but its file stays
  struct stat info {};
  ASSERT_EQ(::stat(path.c_str(), &info), 0);
  {
    StoreServer::Options options;
    options.address = address;
    const StoreServer next(options);
    EXPECT_THROW(listen_on(address), SystemError);
  }
  EXPECT_NE(::stat(path.c_str(), &info), 0) << "the server left its socket file behind";
}

}  // namespace
}  // namespace lockstep::rendezvous
