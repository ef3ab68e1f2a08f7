// The door of a rank: who gets in during a flood, and who does not.
#include "lockstep/transport/reception.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <ctime>
#include <thread>
#include <vector>

#include "lockstep/base/clock.h"
#include "lockstep/error.h"
#include "lockstep/rendezvous/handshake.h"
#include "lockstep/rendezvous/store_server.h"
#include "rendezvous/strangers.h"

namespace lockstep::transport {
namespace {

using rendezvous::Address;
using rendezvous::Meeting;

const Address kAnyPort{"127.0.0.1", 0, ""};

Address unix_name(const char* test) {
  return Address::unix_socket("@lockstep-test-" + std::to_string(::getpid()) + "-" + test);
}

// Runs `body` with a meeting on each of `size` ranks, which are threads.
void meet(int size, Duration timeout, const std::function<void(Meeting&)>& body) {
  rendezvous::Place place;
  place.secret = rendezvous::fresh_secret();
  place.address = Address::unix_socket("@lockstep-test-" + place.secret.substr(0, 32));
  const rendezvous::StoreServer server({place.address, place.secret, size});
  std::vector<std::thread> ranks;
  for (Rank rank = 0; rank < size; ++rank)
    ranks.emplace_back([&, rank] {
      rendezvous::Identity identity;
      identity.rank = rank;
      identity.size = size;
      Meeting meeting(identity, place, timeout);
      body(meeting);
      meeting.barrier("end");
    });
  for (std::thread& rank : ranks) rank.join();
}

TEST(Reception, RanksGetInDuringAFlood) {
  for (const Address& where : {kAnyPort, unix_name("door")})
    meet(4, 20s, [&](Meeting& meeting) {
      if (meeting.me().rank != 0) {
        const auto doors = meeting.exchange("door", "");
        const auto began = Clock::now();
        call_on_peer(0, Address::parse("door", doors[0]), meeting);
        EXPECT_LT(seconds_since(began), 3.0);
        return;
      }
      const rendezvous::Listener door = rendezvous::listen_on(where);
      const rendezvous::Flood first(door.address);
      const rendezvous::Flood second(door.address);
      std::this_thread::sleep_for(200ms);  // the strangers come first, and fill the listener's queue
      meeting.exchange("door", door.address.text());
      std::set<Rank> came;
      receive_peers(door, meeting, {1, 2, 3}, [&](Rank rank, const Fd&) { came.insert(rank); });
      EXPECT_EQ(came, (std::set<Rank>{1, 2, 3}));
      EXPECT_GT(first.made() + second.made(), 0);
    });
}

// More silent connections than the door holds: the oldest makes room, and it may be a rank's.
TEST(Reception, ARankThatHadToMakeRoomCallsAgain) {
  meet(2, 20s, [&](Meeting& meeting) {
    if (meeting.me().rank == 1) {
      const auto doors = meeting.exchange("door", "");
      EXPECT_NO_THROW(call_on_peer(0, Address::parse("door", doors[0]), meeting));
      return;
    }
    const rendezvous::Listener door = rendezvous::listen_on(kAnyPort);
    meeting.exchange("door", door.address.text());
    {  // hang up on it, as a door does that has to make room
      ASSERT_TRUE(rendezvous::wait_readable(door.fd.get(), Deadline::in(5s)));
      const Fd evicted = rendezvous::accept_from(door.fd);
      const auto greeting = rendezvous::greet();
      rendezvous::write_all(evicted, bytes_of(greeting), Deadline::in(5s));
      rendezvous::make_reset_on_close(evicted);
    }
    bool came = false;
    receive_peers(door, meeting, {1}, [&](Rank, const Fd&) { came = true; });
    EXPECT_TRUE(came);
  });
}

TEST(Reception, AnotherUserIsKeptOffAUnixDoor) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can act as another user";
  const Address where = unix_name("other-user");
  meet(2, 20s, [&](Meeting& meeting) {
    if (meeting.me().rank == 1) {
      meeting.barrier("intruder is gone");
      call_on_peer(0, where, meeting);
      return;
    }
    const rendezvous::Listener door = rendezvous::listen_on(where);
    const std::string secret = meeting.data_secret();
    const pid_t intruder = ::fork();
    if (intruder == 0) {  // it even knows the secret
      if (::setresuid(65534, 65534, 65534) != 0) ::_exit(3);
      try {
        const Fd fd = rendezvous::connect_to(where, Deadline::in(5s));
        rendezvous::read_greeting(fd, Deadline::in(5s));
        ::_exit(1);
      } catch (const SystemError&) {
        ::_exit(0);  // hung up on, without a greeting
      }
    }
    std::thread release([&] {
      int status = 0;
      ::waitpid(intruder, &status, 0);
      EXPECT_EQ(status, 0) << "the intruder was greeted";
      meeting.barrier("intruder is gone");
    });
    receive_peers(door, meeting, {1}, [](Rank, const Fd&) {});
    release.join();
  });
}

// Without a free descriptor the door neither spins nor waits for ever.
TEST(Reception, NoDescriptorLeftIsSaidAndDoesNotSpin) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "the sanitizer for undefined behaviour needs a descriptor to look at memory";
#endif
  meet(2, 20s, [&](Meeting& meeting) {
    if (meeting.me().rank == 1) {
      meeting.barrier("door is closed");
      return;
    }
    const rendezvous::Listener door = rendezvous::listen_on(kAnyPort);
    const Fd caller = rendezvous::connect_to(door.address, Deadline::in(5s));
    rlimit before{};
    ::getrlimit(RLIMIT_NOFILE, &before);
    const int lowest_free = ::dup(STDIN_FILENO);
    ASSERT_GE(lowest_free, 0);
    ::close(lowest_free);
    const rlimit none{static_cast<rlim_t>(lowest_free), before.rlim_max};
    ::setrlimit(RLIMIT_NOFILE, &none);
    timespec cpu_before{};
    timespec cpu_after{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &cpu_before);
    try {
      receive_peers(door, meeting, {1}, [](Rank, const Fd&) {});
      ADD_FAILURE() << "accepted without a descriptor";
    } catch (const SystemError& error) {
      EXPECT_EQ(error.code(), EMFILE);
      EXPECT_NE(std::string(error.what()).find("rank 0 cannot accept the connection of rank 1"), std::string::npos);
      EXPECT_NE(std::string(error.what()).find("ulimit -n"), std::string::npos) << error.what();
    }
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &cpu_after);
    ::setrlimit(RLIMIT_NOFILE, &before);
    const double busy = static_cast<double>(cpu_after.tv_sec - cpu_before.tv_sec) +
                        static_cast<double>(cpu_after.tv_nsec - cpu_before.tv_nsec) * 1e-9;
    EXPECT_LT(busy, 0.5) << "of about 2 s";
    meeting.barrier("door is closed");
  });
}

}  // namespace
}  // namespace lockstep::transport
