#include "lockstep/trace/rank_trace.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <string>

#include "lockstep/error.h"

namespace lockstep::trace {
namespace {

using std::chrono::nanoseconds;

Slice slice(std::int64_t start, std::int64_t end) { return {.start = nanoseconds(start), .end = nanoseconds(end)}; }

// The most slices that are open at one time: no assignment needs fewer lanes.
std::size_t depth(const std::vector<Slice>& slices) {
  std::size_t most = 0;
  for (const Slice& at : slices) {
    const auto open = std::ranges::count_if(
        slices, [&](const Slice& other) { return other.start <= at.start && at.start < other.end; });
    most = std::max(most, static_cast<std::size_t>(open));
  }
  return most;
}

TEST(Lanes, NeverOverlapAndAreAsFewAsCanBe) {
  std::mt19937 random(12345);
  for (int round = 0; round < 300; ++round) {
    const std::int64_t longest = 1 + random() % 60;
    std::vector<Slice> slices;
    for (auto n = static_cast<std::uint32_t>(random() % 80); n > 0; --n) {
      const std::int64_t start = random() % 200;
      slices.push_back(slice(start, start + 1 + random() % longest));
      slices.back().name = n;
    }
    const auto result = lanes(slices);
    EXPECT_EQ(result.size(), depth(slices));
    std::vector<std::uint32_t> names;
    for (const auto& lane : result) {
      ASSERT_FALSE(lane.empty());
      for (std::size_t i = 0; i < lane.size(); ++i) {
        names.push_back(lane[i].name);
        ASSERT_TRUE(i == 0 || lane[i - 1].end <= lane[i].start);
      }
    }
    std::ranges::sort(names);
    ASSERT_EQ(names.size(), slices.size());
    for (std::size_t i = 0; i < names.size(); ++i) ASSERT_EQ(names[i], i + 1);
  }
}

TEST(Lanes, TheFirstFreeOneIsTaken) {
  const auto result = lanes({slice(0, 10), slice(1, 3), slice(2, 4), slice(5, 6), slice(10, 10), slice(10, 12)});
  ASSERT_EQ(result.size(), 3U);
  EXPECT_EQ(result[0].size(), 3U);  // 0-10, 10-10, 10-12: touching is not overlapping
  EXPECT_EQ(result[1].size(), 2U);  // 1-3, 5-6
  EXPECT_EQ(result[2].size(), 1U);
  EXPECT_TRUE(lanes({}).empty());
}

RankTrace example() {
  RankTrace trace{.rank = 5, .pid = 1234, .host = "node-1", .dropped = 9};
  trace.strings = {"", "step", "train", "bytes", "algorithm", std::string("a\0b", 3)};
  Slice with_args = slice(10, 20);
  with_args.name = 1;
  with_args.category = 2;
  with_args.args[0] = {-1, 3, 0};
  with_args.args[1] = {5, 4, 1};
  trace.tracks = {{"main", {with_args, slice(11, 12)}}, {"empty", {}}};
  trace.flights = {slice(0, 100)};
  return trace;
}

TEST(Serialize, ComesBackAsItWas) {
  const RankTrace before = example();
  const std::string bytes = serialize(before);
  const RankTrace after = parse(bytes);
  EXPECT_EQ(after.rank, 5);
  EXPECT_EQ(after.pid, 1234);
  EXPECT_EQ(after.host, "node-1");
  EXPECT_EQ(after.dropped, 9U);
  EXPECT_EQ(after.strings, before.strings);
  ASSERT_EQ(after.tracks.size(), 2U);
  EXPECT_EQ(after.tracks[0].name, "main");
  ASSERT_EQ(after.tracks[0].slices.size(), 2U);
  const Slice& first = after.tracks[0].slices[0];
  EXPECT_EQ(first.start, nanoseconds(10));
  EXPECT_EQ(first.end, nanoseconds(20));
  EXPECT_EQ(after.text(first.name), "step");
  EXPECT_EQ(after.find(first, "bytes")->value, -1);
  EXPECT_EQ(after.find(first, "algorithm")->is_text, 1U);
  EXPECT_EQ(after.flights.size(), 1U);
  EXPECT_EQ(serialize(after), bytes);
  EXPECT_EQ(serialize(parse(serialize(RankTrace{}))), serialize(RankTrace{}));
}

TEST(Parse, RefusesEveryTruncationAndMore) {
  const std::string bytes = serialize(example());
  for (std::size_t size = 0; size < bytes.size(); ++size)
    EXPECT_THROW(parse(std::string_view(bytes).substr(0, size)), Error) << size << " bytes";
  EXPECT_THROW(parse(bytes + '\0'), Error);
}

// A damaged byte may go unnoticed (a time, a letter), but nothing worse than an Error comes of it.
TEST(Parse, SurvivesEveryDamagedByte) {
  const std::string bytes = serialize(example());
  int refused = 0;
  for (std::size_t i = 0; i < bytes.size(); ++i)
    for (const int flip : {0x01, 0x80, 0xff}) {
      std::string damaged = bytes;
      damaged[i] = static_cast<char>(damaged[i] ^ flip);
      try {
        const RankTrace trace = parse(damaged);
        for (const Track& track : trace.tracks)
          for (const Slice& each : track.slices) {
            EXPECT_LE(each.start, each.end);
            EXPECT_NO_THROW(trace.find(each, trace.text(each.name) + trace.text(each.category)));
          }
      } catch (const Error&) {
        ++refused;
      }
    }
  EXPECT_GT(refused, 100);
}

TEST(Parse, RefusesHostileValues) {
  const auto refused = [](auto harm) {
    RankTrace trace = example();
    harm(trace);
    EXPECT_THROW(parse(serialize(trace)), Error);
  };
  refused([](RankTrace& trace) { trace.rank = -1; });
  refused([](RankTrace& trace) { trace.strings.clear(); });
  refused([](RankTrace& trace) { trace.strings[0] = "not empty"; });
  refused([](RankTrace& trace) { trace.tracks[0].slices[1].name = 6; });
  refused([](RankTrace& trace) { trace.tracks[0].slices[1].category = 0xffffffff; });
  refused([](RankTrace& trace) { trace.tracks[0].slices[0].args[0].key = 6; });
  refused([](RankTrace& trace) { trace.tracks[0].slices[0].args[1].value = 6; });
  refused([](RankTrace& trace) { trace.tracks[0].slices[0].args[1].value = -1; });
  refused([](RankTrace& trace) { trace.flights[0] = slice(2, 1); });
  refused([](RankTrace& trace) { trace.flights[0] = slice(-1, 1); });
  refused([](RankTrace& trace) { trace.flights[0].end = nanoseconds::max(); });
}

// Counts that no memory could hold, wherever one may stand.
TEST(Parse, AHugeCountTakesNoMemory) {
  const std::string bytes = serialize(example());
  for (const std::uint64_t count : {~std::uint64_t{0}, std::uint64_t{1} << 62, std::uint64_t{1} << 40})
    for (std::size_t at = 16; at + sizeof count <= bytes.size(); ++at) {
      std::string damaged = bytes;
      std::memcpy(damaged.data() + at, &count, sizeof count);
      try {
        parse(damaged);
      } catch (const Error&) {  // std::bad_alloc and std::length_error would end the test
      }
    }
  std::string strings = serialize(RankTrace{});
  const std::uint64_t huge = std::uint64_t{1} << 40;
  std::memcpy(strings.data() + 32, &huge, sizeof huge);  // after magic, rank, pid, an empty host and dropped
  EXPECT_THROW(parse(strings), Error);
}

}  // namespace
}  // namespace lockstep::trace
