// What a rank sees when a peer is late, leaves, fails or disagrees.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <optional>
#include <stdexcept>
#include <thread>

#include "lockstep/base/error.h"
#include "worlds.h"

namespace lockstep::transport {
namespace {

using FailureTest = EveryWay;
LOCKSTEP_EVERY_WAY(FailureTest);

template <typename Kind, typename Body>
std::string text_of(Body body) {
  try {
    body();
  } catch (const Kind& error) {
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST_P(FailureTest, ADifferentSizeIsAMismatchThatNamesBothAndTheNextMessageIsFine) {
  run(2, [](World& world) {
    Transport& transport = world.transport();
    for (const std::size_t bytes : {std::size_t{16}, std::size_t{1} << 20}) {
      if (world.rank() == 0) {
        transport.send(1, 4, std::vector<std::byte>(bytes));
        transport.send(1, 4, pattern(100, 0, 1, 4, 1));
      } else {
        std::vector<std::byte> buffer(8);
        const std::string text = text_of<Mismatch>([&] { transport.recv(0, 4, buffer); });
        EXPECT_TRUE(contains(text, "recv of 8 bytes from rank 0, tag 4: rank 0 sent " + describe_bytes(bytes))) << text;
        expect_recv(transport, 0, 4, 100, 1);
      }
    }
  });
}

TEST_P(FailureTest, AReceiveThatTimesOutNamesThePeerAndTheWorldGoesOn) {
  std::atomic<bool> timed_out{false};
  run(2, [&](World& world) {
    Transport& transport = world.transport();
    if (world.rank() == 0) {
      std::vector<std::byte> buffer(100);
      const std::string text = text_of<TimedOut>([&] { transport.recv(1, 3, buffer, 100ms); });
      EXPECT_TRUE(contains(text, "rank 0: recv of 100 bytes from rank 1, tag 3 timed out after 0.1 s")) << text;
      EXPECT_TRUE(contains(text, "look at rank 1")) << text;
      timed_out = true;
      expect_recv(transport, 1, 3, 100, 7);
    } else {
      while (!timed_out) std::this_thread::sleep_for(1ms);
      transport.send(0, 3, pattern(100, 1, 0, 3, 7));
    }
  });
}

TEST_P(FailureTest, AnAsynchronousReceiveTimesOutToo) {
  run(2, [&](World& world) {
    if (world.rank() != 0) return;
    std::vector<std::byte> buffer(100);
    Work work = world.transport().recv_async(1, 3, buffer, 50ms);
    EXPECT_THROW(work.wait(), Error);  // TimedOut, or PeerDied as rank 1 leaves at once
    EXPECT_TRUE(work.done());
    EXPECT_THROW(work.wait(), Error);
  });
}

// A large send to a rank that is in no call. It must not return, nor may the receiver ever see half of it.
TEST_P(FailureTest, ASendThatNobodyTakesTimesOut) {
  std::atomic<bool> timed_out{false};
  run(2, [&](World& world) {
    Transport& transport = world.transport();
    if (world.rank() == 0) {
      const auto large = pattern(64 << 20, 0, 1, 1, 0);
      const std::string text = text_of<TimedOut>([&] { transport.send(1, 1, large, 200ms); });
      EXPECT_TRUE(contains(text, "send of 64.0 MiB")) << text;
      timed_out = true;
    } else {
      while (!timed_out) std::this_thread::sleep_for(1ms);
      std::vector<std::byte> buffer(64 << 20);
      EXPECT_THROW(transport.recv(0, 1, buffer, 5s), Error);
    }
  });
}

TEST_P(FailureTest, WhatALeavingRankSentIsReceivedThenItsAbsenceIsNamed) {
  run(3, [](World& world) {
    Transport& transport = world.transport();
    if (world.rank() == 1) {
      transport.send(0, 0, pattern(3000, 1, 0, 0, 0));
      return;  // leaves in good order
    }
    if (world.rank() == 0) {
      std::this_thread::sleep_for(100ms);  // rank 1 is gone by now, or as good as
      expect_recv(transport, 1, 0, 3000, 0);
      std::uint64_t word = 0;
      const std::string text = text_of<PeerDied>([&] { transport.recv(1, 0, writable_bytes_of(word)); });
      EXPECT_TRUE(contains(text, "rank 1 has left after 1 messages to rank 0")) << text;
      EXPECT_THROW(transport.send(1, 0, bytes_of(word)), PeerDied);
      transport.send(2, 0, bytes_of(word));  // the others are not concerned
    } else {
      std::uint64_t word = 0;
      transport.recv(0, 0, writable_bytes_of(word));
    }
  });
}

TEST_P(FailureTest, AnExceptionOnOneRankReachesAllWithItsText) {
  std::atomic<int> told{0};
  try {
    run(4, [&](World& world) {
      if (world.rank() == 2) throw std::runtime_error("loss is NaN at step 7");
      std::uint64_t word = 0;
      // Rank 0 waits for rank 1, which waits too: only word of rank 2's failure can end it.
      const Rank peer = world.rank() == 0 ? 1 : 0;
      const std::string text = text_of<PeerDied>([&] { world.transport().recv(peer, 0, writable_bytes_of(word)); });
      EXPECT_TRUE(contains(text, "stopped because rank 2 failed: loss is NaN at step 7")) << text;
      EXPECT_TRUE(contains(text, "it was waiting in recv of 8 bytes from rank " + std::to_string(peer))) << text;
      EXPECT_THROW(world.transport().send(peer, 0, bytes_of(word)), PeerDied) << "later calls throw too";
      ++told;
    });
    FAIL() << "the exception was swallowed";
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "loss is NaN at step 7");
  }
  EXPECT_EQ(told, 3);
}

TEST_P(FailureTest, WorksOutstandingAtDestructionFail) {
  std::vector<std::byte> in(1 << 20);
  const std::vector<std::byte> out(32 << 20);
  std::optional<Work> receiving;
  std::optional<Work> sending;
  run(2, [&](World& world) {
    if (world.rank() != 0) return;
    receiving = world.transport().recv_async(1, 1, in);
    try {
      sending = world.transport().send_async(1, 1, out);
    } catch (const PeerDied&) {  // rank 1 may have left already
    }
  });
  EXPECT_TRUE(receiving->done());
  EXPECT_THROW(receiving->wait(), Error);
  if (sending) {
    EXPECT_TRUE(sending->done());
  }
}

TEST_P(FailureTest, BadPeersAreUsageErrors) {
  run(2, [](World& world) {
    std::uint64_t word = 0;
    for (const Rank peer : {-1, 2, world.rank()}) {
      EXPECT_THROW(world.transport().send(peer, 0, bytes_of(word)), UsageError);
      EXPECT_THROW(world.transport().recv_async(peer, 0, writable_bytes_of(word)), UsageError);
    }
  });
}

// Fault 35. Not under the sanitizers' fork handling alone: the child only throws, and leaves without destructors.
TEST_P(FailureTest, AForkedChildGetsAnErrorAndTheParentGoesOn) {
  run(2, [](World& world) {
    std::uint64_t word = 5;
    if (world.rank() == 0) {
      const pid_t child = ::fork();
      if (child == 0) {
        try {
          world.transport().send(1, 0, bytes_of(word));
        } catch (const UsageError& error) {
          ::_exit(contains(error.what(), "forked child") ? 0 : 2);
        } catch (...) {
        }
        ::_exit(3);
      }
      int status = 0;
      ::waitpid(child, &status, 0);
      EXPECT_EQ(status, 0);
      world.transport().send(1, 0, bytes_of(word));
    } else {
      world.transport().recv(0, 0, writable_bytes_of(word));
      EXPECT_EQ(word, 5U);
    }
  });
}

}  // namespace
}  // namespace lockstep::transport
