// A pid names a process only as long as it lives. What holds a peer must notice when the number is somebody else's.
#include "lockstep/transport/peer_process.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "lockstep/base/clock.h"
#include "lockstep/error.h"
#include "lockstep/transport/shm/peer_memory.h"

namespace lockstep::transport {
namespace {

rendezvous::Peer peer_with(int pid) {
  rendezvous::Peer peer;
  peer.rank = 1;
  peer.pid = pid;
  peer.started = rendezvous::process_start_time(pid);
  return peer;
}

pid_t start_sleeper() {
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(30);
    while (true) ::pause();
  }
  return child;
}

TEST(PeerProcess, KnowsWhenItHasEnded) {
  const pid_t child = start_sleeper();
  const auto process = PeerProcess::of(peer_with(child));
  EXPECT_FALSE(process->has_ended(0ms));
  EXPECT_TRUE(process->owns_pid());
  EXPECT_EQ(PeerProcess::of(peer_with(child)), process) << "all share one descriptor";
  ::kill(child, SIGKILL);
  EXPECT_TRUE(process->has_ended(2000ms));
  ::waitpid(child, nullptr, 0);
  EXPECT_FALSE(process->owns_pid() && process->has_ended(0ms) == false);
}

// The same pid, but not the process that was met: another start time.
TEST(PeerProcess, AnotherProcessWithTheSamePidIsNotThePeer) {
  const pid_t child = start_sleeper();
  rendezvous::Peer earlier = peer_with(child);
  earlier.started -= 1;
  const auto process = PeerProcess::of(earlier);
  EXPECT_TRUE(process->has_ended(0ms));
  static const std::uint64_t word = 7;  // at the same address in the child, which is our copy
  std::uint64_t copy = 0;
  const auto from = reinterpret_cast<std::uint64_t>(&word);
  EXPECT_FALSE(shm::PeerMemory(process).read(from, writable_bytes_of(copy))) << "read a stranger's memory";
  EXPECT_FALSE(shm::PeerMemory(process).write(from, bytes_of(copy))) << "wrote to a stranger's memory";
  if (shm::PeerMemory(PeerProcess::of(peer_with(child))).read(from, writable_bytes_of(copy))) {
    EXPECT_EQ(copy, 7U);  // else this kernel forbids it altogether
  }
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
}

// Fault: with a low `ulimit -n` a live rank was reported as dead.
TEST(PeerProcess, NoDescriptorLeftIsAnErrorOfItsOwn) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "the sanitizer for undefined behaviour needs a descriptor to look at memory";
#endif
  const rendezvous::Peer parent = peer_with(::getpid());
  const pid_t child = ::fork();
  if (child == 0) {
    const rlimit none{3, 3};
    ::setrlimit(RLIMIT_NOFILE, &none);
    try {
      const PeerProcess process(parent);
    } catch (const SystemError& error) {
      ::_exit(error.code() == EMFILE && std::string(error.what()).find("ulimit -n") != std::string::npos ? 0 : 2);
    }
    ::_exit(1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace lockstep::transport
