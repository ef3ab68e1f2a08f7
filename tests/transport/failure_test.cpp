// What a rank sees when a peer is late, leaves, fails or disagrees.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <optional>
#include <stdexcept>
#include <thread>

#include "lockstep/base/clock.h"
#include "lockstep/error.h"
#include "lockstep/rendezvous/meeting.h"
#include "lockstep/transport.h"
#include "lockstep/transport/shm/share.h"
#include "lockstep/world.h"
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
    PendingMessage work = world.transport().recv_async(1, 3, buffer, 50ms);
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
  std::optional<PendingMessage> receiving;
  std::optional<PendingMessage> sending;
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
  EXPECT_THROW(receiving->wait(), Error) << "the same again";
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

// Another tag keeps the wire busy; the deadline holds all the same.
TEST_P(FailureTest, ADeadlineHoldsWhileOtherMessagesPourIn) {
  std::atomic<bool> timed_out{false};
  run(2, [&](World& world) {
    std::uint64_t word = 0;
    if (world.rank() == 0) {
      const auto start = Clock::now();
      EXPECT_THROW(world.transport().recv(1, 2, writable_bytes_of(word), 300ms), TimedOut);
      EXPECT_LT(seconds_since(start), 3.0);
      timed_out = true;
    } else {
      for (int i = 0; i < 200'000 && !timed_out; ++i) {
        try {
          world.transport().send(0, 1, bytes_of(word));
        } catch (const PeerDied&) {
          return;  // rank 0 has left
        }
      }
      while (!timed_out) std::this_thread::sleep_for(1ms);
    }
  });
}

// Messages shorter than a segment. Either nothing of the last one moved and the world goes on, or all later calls
// throw.
TEST_P(FailureTest, AfterASendThatTimedOutCallsThrowOrWorkButNeverWait) {
  std::atomic<bool> timed_out{false};
  run(2, [&](World& world) {
    if (world.rank() != 0) {
      while (!timed_out) std::this_thread::sleep_for(1ms);
      return;
    }
    const std::vector<std::byte> message(512 << 10);
    try {
      for (int i = 0; i < 1000; ++i) world.transport().send(1, 1, message, 200ms);
      ADD_FAILURE() << "a thousand messages went to a rank that is in no call";
    } catch (const TimedOut&) {
    }
    const auto start = Clock::now();
    std::uint64_t word = 0;
    EXPECT_THROW(world.transport().recv(1, 1, writable_bytes_of(word), 300ms), Error);
    EXPECT_LT(seconds_since(start), 2.0);
    timed_out = true;
  });
}

TEST_P(FailureTest, SendingToARankThatLeftHarmsNobodyElse) {
  run(3, [](World& world) {
    if (world.rank() == 2) return;
    std::uint64_t word = 1;
    if (world.rank() == 0) {
      const Deadline deadline = Deadline::in(20s);
      try {
        while (!deadline.passed()) world.transport().send(2, 0, bytes_of(word));
        ADD_FAILURE() << "sent for 20 s to a rank that is gone";
      } catch (const PeerDied& died) {
        EXPECT_TRUE(contains(died.what(), "rank 2 has left")) << died.what();
      }
      world.transport().send(1, 0, bytes_of(word));
    } else {
      world.transport().recv(0, 0, writable_bytes_of(word));
    }
  });
}

// When a call has thrown, its buffer is the caller's again: nobody writes to it or reads from it. The address sanitizer
// would see it, for ranks are threads here.
TEST_P(FailureTest, NobodyTouchesABufferAfterItsCallThrew) {
  for (int delay = 0; delay < 12; ++delay) {
    try {
      run(3, [&](World& world) {
        if (world.rank() == 2) {
          std::this_thread::sleep_for(delay * 300us);
          throw std::runtime_error("now");
        }
        while (true) {  // until rank 2's failure is heard
          const auto buffer = std::make_unique<std::vector<std::byte>>(4 << 20);
          if (world.rank() == 0) world.transport().send(1, 0, *buffer);
          if (world.rank() == 1) world.transport().recv(0, 0, *buffer);
        }
      });
    } catch (const std::runtime_error&) {
    }
  }
  for (int i = 0; i < 3; ++i) {  // and by a timeout
    try {
      run(2, [&](World& world) {
        for (int message = 0; message < 10; ++message) {  // as long as bytes move, no deadline ends the call
          const auto buffer = std::make_unique<std::vector<std::byte>>(32 << 20);
          if (world.rank() == 0) world.transport().send(1, 0, *buffer, 2ms);
          if (world.rank() == 1) world.transport().recv(0, 0, *buffer, 2ms);
        }
      });
    } catch (const Error&) {
    }
  }
}

// The same where it matters most: a peer is held between claiming a piece and copying it while the call times out.
TEST(ShmFailure, APieceThatAPeerHasClaimedIsCopiedBeforeTheCallThrows) {
  Options options;
  options.kind = TransportKind::shm;
  options.single_copy_from = 1;
  std::atomic<bool> held{false};

  thread_local bool mine = false;
  options.before_copy = [&] {
    if (!mine && !held) std::this_thread::sleep_for(1ms);  // so that the other gets a piece, too
    if (mine && !held.exchange(true)) std::this_thread::sleep_for(300ms);
  };
  for (const Rank slow : {0, 1}) {
    held = false;

    try {
      thread_world(
          2,
          [&](World& world) {
            mine = world.rank() == slow;
            std::vector<std::byte> buffer(1 << 20, static_cast<std::byte>(1 + world.rank()));
            const auto timeout = mine ? Duration(5s) : Duration(50ms);
            try {
              if (world.rank() == 0)
                world.transport().send(1, 0, buffer, timeout);
              else
                world.transport().recv(0, 0, buffer, timeout);
            } catch (const TimedOut&) {
              EXPECT_FALSE(mine);
              std::fill(buffer.begin(), buffer.end(), std::byte{77});  // the caller's again
              std::this_thread::sleep_for(500ms);
              for (const std::byte byte : buffer) ASSERT_EQ(byte, std::byte{77}) << "written after the call threw";
              throw;
            } catch (const Error&) {
              // The held rank's message must not have the bytes that were put there after the call threw.
              const bool received = world.rank() == 1;
              for (const std::byte byte : buffer)
                ASSERT_FALSE(received && byte == std::byte{77}) << "read after the call threw";
              throw;
            }
          },
          options);
    } catch (const Error&) {
    }
    EXPECT_TRUE(held) << "nobody was held: the test has tested nothing";
  }
}

// Where the peer does not come back: it stays between its claim and its copy, as a process does that was stopped.
TEST(ShmFailure, APeerThatCouldStillWriteEndsTheProcess) {
  const auto held_for_long = [] {
    Options options;
    options.kind = TransportKind::shm;
    options.single_copy_from = 1;
    thread_local bool mine = false;
    options.before_copy = [] { std::this_thread::sleep_for(mine ? Duration(600s) : Duration(1ms)); };
    thread_world(
        2,
        [&](World& world) {
          mine = world.rank() == 0;
          std::vector<std::byte> buffer(1 << 20);
          if (mine)
            world.transport().send(1, 0, buffer);
          else
            world.transport().recv(0, 0, buffer, 50ms);
        },
        options);
  };
  EXPECT_EXIT(held_for_long(), ::testing::ExitedWithCode(kExitTimedOut),
              "rank 1: rank 0 has been copying into a buffer of a call that has failed.*see whether rank 0 is stopped");
}

// Fault 35. An exception that leaves the child's main() runs destructors too: they must not wait for the parent's
// threads.
TEST_P(FailureTest, AForkedChildMayDestroyItsWorld) {
  run(2, [](World& world) {
    std::uint64_t answer = 0;
    if (world.rank() == 0) {
      PendingMessage work = world.transport().recv_async(1, 1, writable_bytes_of(answer));  // the helper thread waits
      std::this_thread::sleep_for(50ms);
      const pid_t child = ::fork();
      if (child == 0) {
        ::alarm(10);
        { const World gone(std::move(world)); }
        ::_exit(0);
      }
      int status = 0;
      ::waitpid(child, &status, 0);
      EXPECT_EQ(status, 0);
      world.transport().send(1, 0, bytes_of(answer));
      work.wait();
    } else {
      world.transport().recv(0, 0, writable_bytes_of(answer));
      world.transport().send(0, 1, bytes_of(answer));
    }
  });
}

// Fault 35. Not under the sanitizers' fork handling alone: the child only throws, and leaves without destructors.
TEST_P(FailureTest, AForkedChildGetsAnErrorAndTheParentGoesOn) {
  run(2, [](World& world) {
    std::uint64_t word = 5;
    std::uint64_t answer = 0;
    if (world.rank() == 0) {
      PendingMessage work = world.transport().recv_async(1, 1, writable_bytes_of(answer));
      const pid_t child = ::fork();
      if (child == 0) {
        try {
          world.transport().send(1, 0, bytes_of(word));
          ::_exit(3);
        } catch (const UsageError& error) {
          if (!contains(error.what(), "forked child")) ::_exit(2);
        }
        try {
          work.wait();
          ::_exit(4);
        } catch (const UsageError&) {
        }
        world.abort("a child is not the rank");
        ::_exit(0);
      }
      int status = 0;
      ::waitpid(child, &status, 0);
      EXPECT_EQ(status, 0);
      world.transport().send(1, 0, bytes_of(word));
      work.wait();
      EXPECT_EQ(answer, 5U);
    } else {
      world.transport().recv(0, 0, writable_bytes_of(answer));
      EXPECT_EQ(answer, 5U);
      world.transport().send(0, 1, bytes_of(answer));
    }
  });
}

// Rank 0 tells the name of its door, as share_region does, and leaves before anyone has called there.
TEST(SharedRegion, ADoorWhoseRankHasLeftIsNotWaitedFor) {
  constexpr Tag kTag = 5;
  constexpr std::size_t kNote = 404;
  thread_world(2, [&](World& world) {
    Transport& transport = world.transport();
    if (world.rank() == 0) {
      std::vector<std::byte> note(kNote);
      transport.send(1, kTag, note);  // no problem so far
      const std::string door = "@lockstep-nobody-is-here";
      std::memcpy(note.data() + sizeof(Rank), door.data(), door.size());
      transport.send(1, kTag, note);
      world.abort("rank 0: had enough");
      return;
    }
    const auto began = Clock::now();
    const std::vector<Rank> everyone = {0, 1};
    const std::string text = text_of<PeerDied>(
        [&] { shm::share_region(world.meeting(), transport, everyone, kTag, 4096, world.options().shm_dir); });
    EXPECT_TRUE(contains(text, "rank 0: had enough")) << text;
    EXPECT_LT(Clock::now() - began, 20s) << "it waited for the meeting's deadline, 60 s";
  });
}

}  // namespace
}  // namespace lockstep::transport
