// The store under a flood of strangers (fault 19), and what a caller does when it is hung up on.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <thread>
#include <vector>

#include "lockstep/base/clock.h"
#include "lockstep/error.h"
#include "lockstep/rendezvous/dial.h"
#include "lockstep/rendezvous/socket.h"
#include "lockstep/rendezvous/store_server.h"
#include "rendezvous/strangers.h"

namespace lockstep::rendezvous {
namespace {

const Address kAnyPort{"127.0.0.1", 0, ""};

StoreServer::Options options(const Address& address) {
  StoreServer::Options result;
  result.address = address;
  result.secret = "the secret";
  return result;
}

Claim nobody() { return {Claim::store, -1, 1, 0, 1}; }

Address unix_name(const char* test) {
  return Address::unix_socket("@lockstep-test-" + std::to_string(::getpid()) + "-" + test);
}

// A reset must arrive as ECONNRESET, whatever system calls the message about it needs: callers try again on it.
TEST(Flood, AResetIsReportedAsAReset) {
  const Listener listener = listen_on(kAnyPort);
  const Fd caller = connect_to(listener.address, Deadline::in(5s));
  ASSERT_TRUE(wait_readable(listener.fd.get(), Deadline::in(5s)));
  {
    const Fd accepted = accept_from(listener.fd);
    make_reset_on_close(accepted);
  }
  char byte = 0;
  try {
    read_exact(caller, writable_bytes_of(byte), Deadline::in(5s));
    FAIL() << "read something";
  } catch (const SystemError& error) {
    EXPECT_EQ(error.code(), ECONNRESET) << error.what();
  }
}

// A listener that hangs up on the first callers, by a reset or an end of stream, before or after its greeting.
TEST(Flood, ACallerThatIsHungUpOnCallsAgain) {
  Listener listener = listen_on(kAnyPort);
  std::thread server([&] {
    for (int call = 0; call < 5; ++call) {
      ASSERT_TRUE(wait_readable(listener.fd.get(), Deadline::in(5s)));
      const Fd accepted = accept_from(listener.fd);
      const Greeting greeting = greet();
      if (call >= 2) write_all(accepted, bytes_of(greeting), Deadline::in(5s));
      if (call % 2 == 0 && call < 4) make_reset_on_close(accepted);
      if (call < 4) continue;
      Introduction introduction{};
      read_exact(accepted, writable_bytes_of(introduction), Deadline::in(5s));
      write_all(accepted, bytes_of(accept("s", greeting, introduction)), Deadline::in(5s));
    }
  });
  EXPECT_NO_THROW(dial(listener.address, {"s", nobody()}, Deadline::in(10s)));
  server.join();
}

TEST(Flood, ASilentListenerIsATimeoutByTheDeadline) {
  const Listener listener = listen_on(kAnyPort);
  const auto began = Clock::now();
  EXPECT_THROW(dial(listener.address, {"s", nobody()}, Deadline::in(1500ms)), TimedOut);
  EXPECT_LT(seconds_since(began), 2.5);
}

TEST(Flood, ClientsGetInAndAreServedOverEverySocket) {
  for (const Address& address : {kAnyPort, unix_name("flood")}) {
    StoreServer server(options(address));
    const Flood flood(server.address());
    ASSERT_TRUE(flood.makes(100));
    for (int i = 0; i < 30; ++i) {
      const auto began = Clock::now();
      StoreClient client(server.address(), "the secret", nobody(), Deadline::in(20s));
      client.set("key", "value", Deadline::in(20s));
      EXPECT_EQ(client.get("key", Deadline::in(20s)), "value");
      EXPECT_LT(seconds_since(began), 2.0) << "client " << i << " on " << server.address().text();
    }
  }
}

// A client that was accepted may ask for more memory than there is. It loses its connection; the store goes on.
TEST(Flood, AnExhaustedMemoryDoesNotEndTheStore) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer needs the address space itself";
#endif
  const pid_t child = ::fork();
  if (child == 0) {
    int code = 1;
    try {
      StoreServer server(options(kAnyPort));
      StoreClient greedy(server.address(), "the secret", nobody(), Deadline::in(20s));
      StoreClient modest(server.address(), "the secret", nobody(), Deadline::in(20s));
      modest.set("key", "value", Deadline::in(20s));
      std::size_t pages = 0;
      std::ifstream("/proc/self/statm") >> pages;
      const rlimit limit{pages * 4096 + (96U << 20), pages * 4096 + (96U << 20)};
      ::setrlimit(RLIMIT_AS, &limit);
      const std::string large(wire::kMaxValue, 'x');
      bool refused = false;
      try {
        for (int i = 0; i < 200; ++i) greedy.set("large" + std::to_string(i), large, Deadline::in(20s));
      } catch (const Error&) {
        refused = true;
      }
      if (refused && modest.get("key", Deadline::in(20s)) == "value") code = 0;
    } catch (const std::exception& error) {
      std::fprintf(stderr, "%s\n", error.what());
    }
    ::_exit(code);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0) << "the store ended with its client";
}

// Another user may take the name first. Both sides must notice, and say who it is.
TEST(Flood, ANameThatAnotherUserHasTakenIsNamed) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can act as another user";
  const Address address = unix_name("taken");
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    char byte = 'x';
    if (::setresuid(65534, 65534, 65534) != 0) ::_exit(1);
    const Listener squatter = listen_on(address);
    if (::write(ready[1], &byte, 1) != 1) ::_exit(1);
    ::sleep(30);
    ::_exit(0);
  }
  char byte = 0;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  const auto began = Clock::now();
  try {
    dial(address, {"", nobody(), true, "another name"}, Deadline::in(20s));
    ADD_FAILURE() << "spoke to another user";
  } catch (const Error& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("(uid 65534)"), std::string::npos) << text;
    EXPECT_NE(text.find("try: another name"), std::string::npos) << text;
  }
  EXPECT_LT(seconds_since(began), 2.0) << "at once, not at the deadline";
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  ::close(ready[0]);
  ::close(ready[1]);
}

}  // namespace
}  // namespace lockstep::rendezvous
