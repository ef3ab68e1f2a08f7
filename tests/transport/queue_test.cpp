#include "lockstep/transport/shm/queue.h"

#include <gtest/gtest.h>

#include <random>
#include <thread>
#include <vector>

namespace lockstep::transport::shm {
namespace {

struct Ring {
  explicit Ring(std::size_t count)
      : memory(new (std::align_val_t(64)) std::byte[count * sizeof(Record)]()),
        cells(reinterpret_cast<Record*>(memory)) {
    producer = Producer(&control, cells, count);
    consumer = Consumer(&control, cells, count);
  }
  ~Ring() { ::operator delete[](memory, std::align_val_t(64)); }
  QueueControl control{};
  std::byte* memory;
  Record* cells;
  Producer producer{nullptr, nullptr, 0};
  Consumer consumer{nullptr, nullptr, 0};
};

// 0xff everywhere: stale payload would look like a header with a size.
std::vector<std::byte> payload(std::size_t bytes) { return std::vector<std::byte>(bytes, std::byte{0xff}); }

TEST(Queue, IsEmptyThenFullThenEmpty) {
  Ring ring(64);
  EXPECT_EQ(ring.consumer.front(), nullptr);
  int pushed = 0;
  while (ring.producer.push({RecordKind::piece, static_cast<Tag>(pushed), 8}, payload(8))) ++pushed;
  EXPECT_EQ(pushed, 63);  // one cell stays free: the one that is cleared
  for (int i = 0; i < pushed; ++i) {
    const Record* record = ring.consumer.front();
    ASSERT_NE(record, nullptr);
    EXPECT_EQ(record->tag, static_cast<Tag>(i));
    ring.consumer.pop();
  }
  EXPECT_EQ(ring.consumer.front(), nullptr);
}

TEST(Queue, OldPayloadIsNeverTakenForAHeader) {
  Ring ring(64);
  std::mt19937 random(3);
  for (int i = 0; i < 20'000; ++i) {
    const std::size_t bytes = random() % ring.producer.max_piece();
    ASSERT_TRUE(ring.producer.push({RecordKind::piece, static_cast<Tag>(i), bytes}, payload(bytes)));
    const Record* record = ring.consumer.front();
    ASSERT_NE(record, nullptr);
    ASSERT_EQ(record->tag, static_cast<Tag>(i));
    ASSERT_EQ(record->piece, bytes);
    ring.consumer.pop();
    ASSERT_EQ(ring.consumer.front(), nullptr) << "after record " << i << " of " << bytes << " bytes";
  }
}

TEST(Queue, TwoThreadsPassEveryRecordOnceAndWhole) {
  Ring ring(256);
  constexpr int kRecords = 30'000;
  const auto size_of = [&](int i) { return static_cast<std::size_t>(i * 37) % ring.producer.max_piece(); };
  std::thread writer([&] {
    for (int i = 0; i < kRecords; ++i) {
      const std::vector<std::byte> bytes(size_of(i), static_cast<std::byte>(i));
      while (!ring.producer.push({RecordKind::piece, static_cast<Tag>(i), bytes.size()}, bytes))
        std::this_thread::yield();
    }
  });
  bool whole = true;
  for (int i = 0; i < kRecords; ++i) {
    const Record* record = nullptr;
    while ((record = ring.consumer.front()) == nullptr) std::this_thread::yield();
    whole = whole && record->tag == static_cast<Tag>(i) && record->piece == size_of(i);
    for (const std::byte byte : Consumer::payload(*record)) whole = whole && byte == static_cast<std::byte>(i);
    ring.consumer.pop();
  }
  writer.join();
  EXPECT_TRUE(whole);
}

}  // namespace
}  // namespace lockstep::transport::shm
