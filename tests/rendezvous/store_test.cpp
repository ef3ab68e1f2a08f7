// The store as friends, strangers and enemies see it (faults 14 and 19).
#include "lockstep/rendezvous/store.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <cstring>
#include <thread>
#include <vector>

#include "lockstep/base/clock.h"
#include "lockstep/error.h"
#include "lockstep/rendezvous/dial.h"
#include "lockstep/rendezvous/socket.h"
#include "lockstep/rendezvous/store_server.h"

namespace lockstep::rendezvous {
namespace {

const Address kAnyPort{"127.0.0.1", 0, ""};

StoreServer::Options options(int world = 4) {
  StoreServer::Options result;
  result.address = kAnyPort;
  result.secret = "the secret";
  result.world = world;
  result.generation = 2;
  return result;
}

Claim claim(Rank rank, int world = 4, int generation = 2, std::uint64_t instance = 7) {
  return {Claim::store, rank, world, generation, instance};
}

std::string refusal(const StoreServer& server, const Claim& who, const std::string& secret = "the secret") {
  try {
    StoreClient client(server.address(), secret, who, Deadline::in(5s));
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Store, SetGetWaitAdd) {
  StoreServer server(options());
  StoreClient a(server.address(), "the secret", claim(0), Deadline::in(5s));
  StoreClient b(server.address(), "the secret", claim(1), Deadline::in(5s));
  const Deadline soon = Deadline::in(5s);
  EXPECT_EQ(a.get("key", soon), std::nullopt);
  a.set("key", std::string("v\0w", 3), soon);
  EXPECT_EQ(b.get("key", soon), std::string("v\0w", 3));
  a.set("key", "", soon);
  EXPECT_EQ(b.wait("key", soon), "");
  EXPECT_EQ(a.add("n", 5, soon), 5);
  EXPECT_EQ(b.add("n", -2, soon), 3);
  std::thread later([&] {
    std::this_thread::sleep_for(50ms);
    a.set("late", "here", soon);
  });
  EXPECT_EQ(b.wait("late", soon), "here");
  later.join();
  EXPECT_EQ(b.wait("never", Deadline::in(50ms)), std::nullopt);
  EXPECT_EQ(b.get("late", soon), "here") << "the connection is in step after a timeout";
  server.set("from the server", "x");
  EXPECT_EQ(a.wait("from the server", soon), "x");
}

TEST(Store, ManyClientsAtOnce) {
  StoreServer server(options(64));
  std::vector<std::thread> clients;
  for (Rank rank = 0; rank < 64; ++rank)
    clients.emplace_back([&, rank] {
      StoreClient client(server.address(), "the secret", claim(rank, 64), Deadline::in(20s));
      for (int i = 0; i < 50; ++i) client.add("sum", 1, Deadline::in(20s));
    });
  for (auto& client : clients) client.join();
  StoreClient last(server.address(), "the secret", claim(-1), Deadline::in(5s));
  EXPECT_EQ(last.add("sum", 0, Deadline::in(5s)), 64 * 50);
  EXPECT_EQ(server.ranks_seen().size(), 64U);
}

// The one that serves may go as soon as it has passed: the others' answers are on their way.
TEST(Store, ABarrierLetsAllPassAndTheServerGo) {
  for (int i = 0; i < 50; ++i) {
    auto server = std::make_unique<StoreServer>(options());
    const Address address = server->address();
    std::vector<std::thread> clients;
    for (Rank rank = 0; rank < 4; ++rank)
      clients.emplace_back([&, rank] {
        StoreClient client(address, "the secret", claim(rank), Deadline::in(5s));
        EXPECT_TRUE(client.barrier("b", 4, Deadline::in(5s)));
        if (rank == 0) server.reset();
      });
    for (auto& client : clients) client.join();
  }
  StoreServer server(options());
  StoreClient alone(server.address(), "the secret", claim(0), Deadline::in(5s));
  EXPECT_FALSE(alone.barrier("b", 2, Deadline::in(50ms)));
}

TEST(Store, WhoComesLaterComparesWithTheFirst) {
  const StoreServer server(options());
  StoreClient client(server.address(), "the secret", claim(0), Deadline::in(5s));
  EXPECT_EQ(client.compare("last", "one", 3, Deadline::in(5s)), "one");
  EXPECT_EQ(client.compare("last", "other", 3, Deadline::in(5s)), "one");
  EXPECT_FALSE(server.comparisons_end_within(10ms));
  EXPECT_EQ(client.compare("last", "one", 3, Deadline::in(5s)), "one");
  EXPECT_TRUE(server.comparisons_end_within(0ms));
  EXPECT_EQ(client.compare("last", "again", 3, Deadline::in(5s)), "again");  // nothing is kept of the three before
}

TEST(Store, AThreadThatWaitsDoesNotHoldUpAnotherPastItsDeadline) {
  const StoreServer server(options());
  StoreClient client(server.address(), "the secret", claim(0), Deadline::in(5s));
  std::thread waiting([&] { EXPECT_FALSE(client.wait("never", Deadline::in(1500ms))); });
  std::this_thread::sleep_for(100ms);  // it has begun to wait
  const auto began = Clock::now();
  EXPECT_THROW(client.set("key", "value", Deadline::in(200ms)), TimedOut);
  EXPECT_LT(seconds_since(began), 1.0);
  waiting.join();
  client.set("key", "value", Deadline::in(5s));  // the connection is as good as before
  EXPECT_EQ(client.get("key", Deadline::in(5s)), "value");
}

TEST(Store, ValuesAreBounded) {
  StoreServer server(options());
  StoreClient client(server.address(), "the secret", claim(0), Deadline::in(5s));
  const std::string large(wire::kMaxValue, 'x');
  client.set("large", large, Deadline::in(5s));
  EXPECT_EQ(client.get("large", Deadline::in(5s)), large);
  EXPECT_THROW(client.set("larger", large + "x", Deadline::in(5s)), UsageError);
  EXPECT_THROW(client.set(std::string(257, 'k'), "", Deadline::in(5s)), UsageError);
  EXPECT_EQ(client.get("large", Deadline::in(5s))->size(), large.size());
}

TEST(Store, AnEmptyKeyIsRefusedAndHarmsNobody) {
  StoreServer server(options());
  StoreClient idle(server.address(), "the secret", claim(1), Deadline::in(5s));
  StoreClient client(server.address(), "the secret", claim(0), Deadline::in(5s));
  EXPECT_THROW(client.set("", "poison", Deadline::in(5s)), UsageError);
  const Fd raw =
      dial(server.address(), {"the secret", claim(2)}, Deadline::in(5s));  // one that does not ask our client for leave
  write_all(raw, bytes_of(wire::Request{wire::Op::set, 0, 0, 0, 0}), Deadline::in(5s));
  wire::Reply reply{};
  read_exact(raw, writable_bytes_of(reply), Deadline::in(5s));
  EXPECT_EQ(reply.status, wire::Status::refused);
  EXPECT_EQ(idle.get("key", Deadline::in(5s)), std::nullopt);
}

TEST(Store, RefusesWhoDoesNotBelong) {
  StoreServer server(options());
  StoreClient rank_1(server.address(), "the secret", claim(1), Deadline::in(5s));
  EXPECT_NE(refusal(server, claim(1, 4, 2, 8)).find("rank 1 is taken by another process"), std::string::npos);
  EXPECT_NE(refusal(server, claim(2, 3)).find("says the world has 3 ranks, this job has 4"), std::string::npos);
  EXPECT_NE(refusal(server, claim(2, 4, 1)).find("belongs to an older start"), std::string::npos);
  EXPECT_NE(refusal(server, claim(4)).find("there is no rank 4 in a world of 4"), std::string::npos);
  EXPECT_NE(refusal(server, claim(2), "another secret").find("secret differs"), std::string::npos);
  EXPECT_EQ(refusal(server, claim(1)), "") << "a second connection of the same process is welcome";
  rank_1.set("still", "here", Deadline::in(5s));
}

// Reads until the server hangs up; false if it has not by the deadline.
bool hung_up(const Fd& fd, const Deadline& deadline) {
  char byte = 0;
  while (wait_readable(fd.get(), deadline)) {
    const ssize_t got = ::recv(fd.get(), &byte, 1, 0);
    if (got == 0 || (got < 0 && errno != EAGAIN)) return true;
  }
  return false;
}

void send_text(const Fd& fd, const std::string& text) {
  write_all(fd, std::as_bytes(std::span(text)), Deadline::in(5s));
}

TEST(Store, StrangersAreDroppedAndTheJobGoesOn) {
  auto impatient = options();
  impatient.handshake_timeout = 300ms;
  StoreServer server(impatient);
  StoreClient friendly(server.address(), "the secret", claim(0), Deadline::in(5s));

  const Fd web = connect_to(server.address(), Deadline::in(5s));
  send_text(web, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n" + std::string(200, 'x'));
  EXPECT_TRUE(hung_up(web, Deadline::in(5s)));

  const Fd silent = connect_to(server.address(), Deadline::in(5s));
  const Fd slow = connect_to(server.address(), Deadline::in(5s));
  send_text(slow, "LOCK");
  EXPECT_TRUE(hung_up(silent, Deadline::in(5s)));
  EXPECT_TRUE(hung_up(slow, Deadline::in(5s)));

  { const Fd scan = connect_to(server.address(), Deadline::in(5s)); }
  friendly.set("alive", "yes", Deadline::in(5s));
}

TEST(Store, AFloodOfSilentConnectionsDoesNotKeepRanksOut) {
  StoreServer server(options());
  std::vector<Fd> flood;
  for (int i = 0; i < 400; ++i) flood.push_back(connect_to(server.address(), Deadline::in(5s)));
  StoreClient friendly(server.address(), "the secret", claim(0), Deadline::in(5s));
  friendly.set("in", "yes", Deadline::in(5s));
}

TEST(Store, ARecordedIntroductionIsWorthless) {
  StoreServer server(options());
  // Record what a friend says: make it say so to a server of our own that repeats the real server's greeting.
  Greeting first{};
  const Fd real = connect_to(server.address(), Deadline::in(5s));
  read_exact(real, writable_bytes_of(first), Deadline::in(5s));
  Listener trap = listen_on(kAnyPort);
  std::thread victim([&] { EXPECT_THROW(StoreClient(trap.address, "the secret", claim(0), Deadline::in(2s)), Error); });
  ASSERT_TRUE(wait_readable(trap.fd.get(), Deadline::in(5s)));
  Introduction recorded{};
  {
    const Fd caught = accept_from(trap.fd);
    write_all(caught, bytes_of(first), Deadline::in(5s));
    read_exact(caught, writable_bytes_of(recorded), Deadline::in(5s));
  }
  victim.join();
  // Played to a new connection it fails, for the nonce is new. (To `real` itself it would be a relay, not a replay.)
  Greeting second{};
  const Fd replay = connect_to(server.address(), Deadline::in(5s));
  read_exact(replay, writable_bytes_of(second), Deadline::in(5s));
  write_all(replay, bytes_of(recorded), Deadline::in(5s));
  Answer answer{};
  read_exact(replay, writable_bytes_of(answer), Deadline::in(5s));
  EXPECT_EQ(answer.accepted, 0);
  EXPECT_TRUE(hung_up(replay, Deadline::in(5s)));
}

TEST(Store, AFalseServerIsNotBelieved) {
  Listener trap = listen_on(kAnyPort);
  std::thread impostor([&] {
    ASSERT_TRUE(wait_readable(trap.fd.get(), Deadline::in(5s)));
    const Fd caught = accept_from(trap.fd);
    const Greeting greeting = greet();
    write_all(caught, bytes_of(greeting), Deadline::in(5s));
    Introduction introduction{};
    read_exact(caught, writable_bytes_of(introduction), Deadline::in(5s));
    write_all(caught, bytes_of(accept("a guess", greeting, introduction)), Deadline::in(5s));
    hung_up(caught, Deadline::in(5s));
  });
  EXPECT_THROW(StoreClient(trap.address, "the secret", claim(0), Deadline::in(5s)), Error);
  impostor.join();
}

TEST(Store, AFriendWithAHugeFrameIsDropped) {
  StoreServer server(options());
  const Fd fd = dial(server.address(), {"the secret", claim(2)}, Deadline::in(5s));
  const wire::Request huge{wire::Op::set, 4, 0xffffffff, 0, 0};
  write_all(fd, bytes_of(huge), Deadline::in(5s));
  EXPECT_TRUE(hung_up(fd, Deadline::in(5s)));
  const Fd odd = dial(server.address(), {"the secret", claim(2)}, Deadline::in(5s));
  const wire::Request unknown{static_cast<wire::Op>(99), 1, 0, 0, 0};
  write_all(odd, bytes_of(unknown), Deadline::in(5s));
  send_text(odd, "k");
  EXPECT_TRUE(hung_up(odd, Deadline::in(5s)));
  StoreClient friendly(server.address(), "the secret", claim(0), Deadline::in(5s));
  friendly.set("alive", "yes", Deadline::in(5s));
}

TEST(Store, ATakenAddressIsNamed) {
  const Listener taken = listen_on(kAnyPort);
  auto clash = options();
  clash.address = taken.address;
  try {
    StoreServer server(clash);
    FAIL() << "two listen on one port";
  } catch (const SystemError& error) {
    EXPECT_NE(std::string(error.what()).find(taken.address.text()), std::string::npos) << error.what();
  }
}

TEST(Store, NobodyThereIsATimeoutThatNamesTheAddress) {
  Address nobody;
  { nobody = listen_on(kAnyPort).address; }
  try {
    StoreClient client(nobody, "", claim(0), Deadline::in(100ms));
    FAIL() << "connected to nobody";
  } catch (const TimedOut& error) {
    EXPECT_NE(std::string(error.what()).find(nobody.text()), std::string::npos) << error.what();
  }
}

TEST(Store, ALostServerIsAnErrorAndNotAHang) {
  auto server = std::make_unique<StoreServer>(options());
  StoreClient client(server->address(), "the secret", claim(0), Deadline::in(5s));
  server.reset();
  EXPECT_THROW(client.get("x", Deadline::in(5s)), Error);
  EXPECT_THROW(client.get("x", Deadline::in(5s)), Error);
}

}  // namespace
}  // namespace lockstep::rendezvous
