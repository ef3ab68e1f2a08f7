// Messages arrive whole, in order, and whoever sends at the same time.
#include <gtest/gtest.h>

#include <atomic>
#include <random>
#include <thread>

#include "lockstep/base/clock.h"
#include "lockstep/error.h"
#include "lockstep/transport.h"
#include "lockstep/world.h"
#include "worlds.h"

namespace lockstep::transport {
namespace {

using MessageTest = EveryWay;
LOCKSTEP_EVERY_WAY(MessageTest);

const std::size_t kSizes[] = {
    0, 1, 31, 32, 33, 95, 96, 97, 1000, 4095, 4096, 4097, 16 * 1024, 16385, 100'003, (1 << 20) + 4, (3 << 20) + 1};

TEST_P(MessageTest, EverySizeBetweenEveryPair) {
  run(3, [](World& world) {
    Transport& transport = world.transport();
    for (const std::size_t bytes : kSizes)
      for (Rank from = 0; from < world.size(); ++from)
        for (Rank to = 0; to < world.size(); ++to) {
          if (from == to) continue;
          if (from == world.rank()) transport.send(to, 5, pattern(bytes, from, to, 5, 0));
          if (to == world.rank()) expect_recv(transport, from, 5, bytes, 0);
        }
  });
}

TEST_P(MessageTest, OrderHoldsPerTagAndTagsMayBeTakenInAnyOrder) {
  run(2, [](World& world) {
    Transport& transport = world.transport();
    constexpr int kMessages = 40;
    const auto size_of = [](Tag tag, int i) { return static_cast<std::size_t>(i * 997 % 20'000) + tag; };
    if (world.rank() == 0) {
      for (int i = 0; i < kMessages; ++i)
        for (Tag tag = 0; tag < 3; ++tag) transport.send(1, tag, pattern(size_of(tag, i), 0, 1, tag, i));
    } else {
      for (const Tag tag : {2U, 0U, 1U})
        for (int i = 0; i < kMessages; ++i) expect_recv(transport, 0, tag, size_of(tag, i), i);
    }
  });
}

// Everyone sends 2 MB to everyone before anyone receives.
TEST_P(MessageTest, SendersNeverDeadlock) {
  // Far more than fits the buffers in between. Small sockets are slow: each fill waits for an acknowledgement.
  const std::size_t bytes = GetParam().options.socket_buffer_bytes > 0 ? 100'003 : (2 << 20) + 3;
  for (const int ranks : {2, 3, 5})
    run(ranks, [bytes](World& world) {
      Transport& transport = world.transport();
      for (Rank peer = 0; peer < world.size(); ++peer)
        if (peer != world.rank()) transport.send(peer, 1, pattern(bytes, world.rank(), peer, 1, 0));
      for (Rank peer = 0; peer < world.size(); ++peer)
        if (peer != world.rank()) expect_recv(transport, peer, 1, bytes, 0);
    });
}

// Rank 0 sends to 1, then to 2; rank 1 wants to hear from 2 first, and 2 from 0. Works only if rank 1 takes in rank 0's
// message while it waits for another.
TEST_P(MessageTest, AWaitingReceiverTakesInWhatOthersSend) {
  run(3, [](World& world) {
    constexpr std::size_t kBytes = (4 << 20) + 1;
    Transport& transport = world.transport();
    if (world.rank() == 0) {
      transport.send(1, 1, pattern(kBytes, 0, 1, 1, 0));
      transport.send(2, 1, pattern(8, 0, 2, 1, 0));
    } else if (world.rank() == 2) {
      expect_recv(transport, 0, 1, 8, 0);
      transport.send(1, 1, pattern(8, 2, 1, 1, 0));
    } else {
      expect_recv(transport, 2, 1, 8, 0);
      expect_recv(transport, 0, 1, kBytes, 0);
    }
  });
}

TEST_P(MessageTest, WorksInBothDirectionsWaitedForBackwards) {
  run(3, [](World& world) {
    Transport& transport = world.transport();
    constexpr int kWorks = 30;
    std::vector<std::vector<std::byte>> out;
    std::vector<std::vector<std::byte>> in;
    std::vector<PendingMessage> works;
    const auto size_of = [](int i) { return static_cast<std::size_t>(i % 5 == 0 ? 300'000 + i : i * 100); };
    for (int i = 0; i < kWorks; ++i) {
      out.push_back(pattern(size_of(i), world.rank(), world.next_rank(), 9, i));
      in.emplace_back(size_of(i));
    }
    for (int i = 0; i < kWorks; ++i) {
      works.push_back(transport.recv_async(world.prev_rank(), 9, in[static_cast<std::size_t>(i)]));
      works.push_back(transport.send_async(world.next_rank(), 9, out[static_cast<std::size_t>(i)]));
    }
    for (auto work = works.rbegin(); work != works.rend(); ++work) work->wait();
    for (int i = 0; i < kWorks; ++i)
      EXPECT_TRUE(in[static_cast<std::size_t>(i)] == pattern(size_of(i), world.prev_rank(), world.rank(), 9, i)) << i;
    for (auto& work : works) {
      EXPECT_TRUE(work.done());
      work.wait();  // a second time is fine
    }
  });
}

// Nobody waits for rank 0's work, nor calls into its transport, until rank 1 has everything.
TEST_P(MessageTest, WorksGoOnWhileNobodyWaits) {
  // Much more than sockets and queues hold. With small sockets, every 16 KB need a wake-up of both sides.
  const std::size_t bytes = GetParam().options.socket_buffer_bytes == 0 ? 12 << 20 : 1 << 20;
  std::atomic<bool> received{false};
  run(2, [&](World& world) {
    Transport& transport = world.transport();
    const auto there = pattern(bytes, 0, 1, 1, 0);
    const auto back = pattern(bytes, 1, 0, 2, 0);
    if (world.rank() == 0) {
      std::vector<std::byte> answer(bytes);
      PendingMessage sending = transport.send_async(1, 1, there);
      PendingMessage receiving = transport.recv_async(1, 2, answer);
      const Deadline deadline = Deadline::in(20s);
      while (!received && !deadline.passed()) std::this_thread::sleep_for(1ms);
      EXPECT_TRUE(received) << "the work stood still while nobody waited";
      sending.wait();
      receiving.wait();
      EXPECT_TRUE(answer == back);
    } else {
      transport.send(0, 2, back);
      expect_recv(transport, 0, 1, bytes, 0);
      received = true;
    }
  });
}

TEST_P(MessageTest, SeveralThreadsOfARankTalkAtOnce) {
  run(2, [](World& world) {
    Transport& transport = world.transport();
    std::vector<std::thread> threads;
    for (Tag tag = 0; tag < 4; ++tag)
      threads.emplace_back([&, tag] {
        for (int i = 0; i < 100; ++i) {
          const std::size_t bytes = i % 10 == 0 ? 40'000 + tag : 8 + tag;
          if (world.rank() == 0) {
            transport.send(1, tag, pattern(bytes, 0, 1, tag, i));
            expect_recv(transport, 1, tag, bytes, i);
          } else {
            expect_recv(transport, 0, tag, bytes, i);
            transport.send(0, tag, pattern(bytes, 1, 0, tag, i));
          }
        }
      });
    for (auto& thread : threads) thread.join();
  });
}

// Random sizes, tags, peers and order of receives, from a seed that the failure would show.
TEST_P(MessageTest, RandomTraffic) {
  for (const int ranks : {3, 7}) {
    const unsigned seed = 20 + static_cast<unsigned>(ranks);
    run(ranks, [&](World& world) {
      constexpr int kMessages = 60;
      struct Message {
        Rank from, to;
        Tag tag;
        std::size_t bytes;
        int number;
      };
      std::vector<Message> all;  // the same on every rank
      std::mt19937 random(seed);
      for (int i = 0; i < kMessages * ranks; ++i) {
        const Rank from = static_cast<Rank>(random() % static_cast<unsigned>(ranks));
        const Rank to = (from + 1 + static_cast<Rank>(random() % static_cast<unsigned>(ranks - 1))) % ranks;
        const std::size_t bytes = random() % 8 == 0 ? random() % 200'000 : random() % 300;
        all.push_back({from, to, static_cast<Tag>(random() % 3), bytes, i});
      }
      Transport& transport = world.transport();
      std::vector<std::vector<std::byte>> out;
      std::vector<PendingMessage> sends;
      for (const auto& m : all)
        if (m.from == world.rank()) {
          out.push_back(pattern(m.bytes, m.from, m.to, m.tag, m.number));
          sends.push_back(transport.send_async(m.to, m.tag, out.back()));
        }
      // Receives in another order, but in the same one for each peer and tag.
      std::stable_sort(all.begin(), all.end(), [&](const Message& a, const Message& b) {
        return (a.tag * 5 + static_cast<Tag>(a.from) * 3) % 7 < (b.tag * 5 + static_cast<Tag>(b.from) * 3) % 7;
      });
      for (const auto& m : all)
        if (m.to == world.rank()) expect_recv(transport, m.from, m.tag, m.bytes, m.number);
      for (auto& send : sends) send.wait();
    });
  }
}

TEST_P(MessageTest, MoreRanksThanCores) {
  run(9, [](World& world) {
    std::uint64_t token = 0;
    for (int lap = 0; lap < 20; ++lap) {
      if (world.rank() != 0) world.transport().recv(world.prev_rank(), 0, writable_bytes_of(token));
      ++token;
      world.transport().send(world.next_rank(), 0, bytes_of(token));
      if (world.rank() == 0) world.transport().recv(world.prev_rank(), 0, writable_bytes_of(token));
    }
    if (world.rank() == 0) {
      EXPECT_EQ(token, 20U * 9);
    }
  });
}

TEST(WorldTest, AWorldOfOneHasNobodyToTalkTo) {
  thread_world(1, [](World& world) {
    EXPECT_EQ(world.size(), 1);
    EXPECT_EQ(world.next_rank(), 0);
    EXPECT_THROW(world.transport(), UsageError);
  });
}

TEST(WorldTest, SeveralWorldsLiveInOneProcess) {
  std::vector<std::thread> worlds;
  for (int i = 0; i < 3; ++i)
    worlds.emplace_back([i] {
      thread_world(3, [i](World& world) {
        world.transport().send(world.next_rank(), 0, pattern(5000, world.rank(), world.next_rank(), 0, i));
        expect_recv(world.transport(), world.prev_rank(), 0, 5000, i);
      });
    });
  for (auto& world : worlds) world.join();
}

}  // namespace
}  // namespace lockstep::transport
