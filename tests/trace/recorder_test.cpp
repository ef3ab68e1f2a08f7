#include "lockstep/base/clock.h"
#include "lockstep/trace.h"
#include "lockstep/trace/rank_trace.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

namespace lockstep::trace {
namespace {

// 0 when there is none.
std::int64_t number(const RankTrace& trace, const Slice& slice, const char* key) {
  const Slice::Arg* arg = trace.find(slice, key);
  return arg != nullptr && arg->is_text == 0 ? arg->value : 0;
}

bool inside(const Slice& inner, const Slice& outer) { return outer.start <= inner.start && inner.end <= outer.end; }

// On one track: each slice lies wholly in the one before it that is still open, or after it.
bool properly_nested(const std::vector<Slice>& slices) {
  std::vector<const Slice*> open;
  for (const Slice& slice : slices) {
    while (!open.empty() && open.back()->end <= slice.start) open.pop_back();
    if (!open.empty() && !inside(slice, *open.back())) return false;
    open.push_back(&slice);
  }
  return true;
}

TEST(Recorder, SpansNestAndCarryArguments) {
  Recorder recorder(3);
  {
    Span step(&recorder, "step", "train");
    {
      Span reduce(&recorder, "all_reduce", "collective", {{"bytes", std::size_t{64}}, {"algorithm", "ring"}});
      std::this_thread::sleep_for(1ms);
      reduce.arg("sequence", 7U);
    }
    Span wait(&recorder, "wait", "collective");
  }
  const RankTrace trace = recorder.snapshot();
  EXPECT_EQ(trace.rank, 3);
  EXPECT_EQ(trace.dropped, 0U);
  EXPECT_TRUE(trace.flights.empty());
  ASSERT_EQ(trace.tracks.size(), 1U);
  EXPECT_EQ(trace.tracks[0].name, "main");
  const std::vector<Slice>& slices = trace.tracks[0].slices;
  ASSERT_EQ(slices.size(), 3U);
  EXPECT_EQ(trace.text(slices[0].name), "step");
  EXPECT_EQ(trace.text(slices[0].category), "train");
  EXPECT_EQ(trace.text(slices[1].name), "all_reduce");
  EXPECT_EQ(trace.text(slices[2].name), "wait");
  EXPECT_EQ(slices[1].category, slices[2].category);
  EXPECT_TRUE(properly_nested(slices));
  EXPECT_TRUE(inside(slices[1], slices[0]));
  EXPECT_GE(slices[1].end - slices[1].start, 1ms);

  EXPECT_EQ(number(trace, slices[1], "bytes"), 64);
  EXPECT_EQ(number(trace, slices[1], "sequence"), 7);
  const Slice::Arg* algorithm = trace.find(slices[1], "algorithm");
  ASSERT_NE(algorithm, nullptr);
  EXPECT_EQ(algorithm->is_text, 1U);
  EXPECT_EQ(trace.text(static_cast<std::uint32_t>(algorithm->value)), "ring");
  EXPECT_EQ(trace.find(slices[0], "bytes"), nullptr);
}

TEST(Recorder, ArgumentsPastTheLastAreLeftOut) {
  Recorder recorder(0);
  {
    Span span(&recorder, "a", "b", {{"1", 1}, {"2", -2}, {"3", 3}});
    span.arg("4", 4);
    span.arg("5", 5);
  }
  const RankTrace trace = recorder.snapshot();
  const Slice& slice = trace.tracks.at(0).slices.at(0);
  EXPECT_EQ(number(trace, slice, "2"), -2);
  EXPECT_EQ(number(trace, slice, "4"), 4);
  EXPECT_EQ(trace.find(slice, "5"), nullptr);
}

TEST(Recorder, OffItRecordsNothing) {
  Recorder recorder(0);
  {
    Recorder* off = nullptr;
    Span span(off, "step", "train", {{"bytes", 1}});
    span.arg("more", 2);
  }
  const RankTrace trace = recorder.snapshot();
  EXPECT_TRUE(trace.tracks.empty());
  EXPECT_TRUE(trace.flights.empty());
  EXPECT_EQ(trace.strings, std::vector<std::string>{""});
}

TEST(Recorder, ThreadsHaveTracksOfTheirOwnWhileSnapshotsAreTaken) {
  constexpr int kThreads = 4;
  constexpr int kSpans = 2000;
  Recorder recorder(0);
  { Span first(&recorder, "start", "test"); }
  std::atomic<int> running{kThreads};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([&, t] {
      const char* mine = recorder.intern("span of " + std::to_string(t));
      for (int i = 0; i < kSpans; i += 2) {
        recorder.name_thread("worker " + std::to_string(t));
        Span outer(&recorder, mine, "test", {{"value", t * kSpans + i}, {"twice", 2 * (t * kSpans + i)}});
        Span inner(&recorder, mine, "test", {{"value", t * kSpans + i + 1}, {"twice", 2 * (t * kSpans + i + 1)}});
      }
      --running;
    });
  // What is seen under way is complete, and only grows.
  std::size_t seen = 0;
  do {
    const RankTrace trace = recorder.snapshot();
    std::size_t now = 0;
    for (const Track& track : trace.tracks) {
      now += track.slices.size();
      for (const Slice& slice : track.slices)
        ASSERT_EQ(number(trace, slice, "twice"), 2 * number(trace, slice, "value"));
    }
    ASSERT_GE(now, seen);
    seen = now;
  } while (running > 0);
  for (std::thread& thread : threads) thread.join();

  const RankTrace trace = recorder.snapshot();
  ASSERT_EQ(trace.tracks.size(), std::size_t{kThreads} + 1);
  EXPECT_EQ(trace.tracks[0].name, "main");
  std::set<std::int64_t> values;
  for (std::size_t i = 1; i < trace.tracks.size(); ++i) {
    const Track& track = trace.tracks[i];
    ASSERT_EQ(track.slices.size(), std::size_t{kSpans});
    EXPECT_TRUE(properly_nested(track.slices));
    for (const Slice& slice : track.slices) {
      EXPECT_EQ(trace.text(slice.name).back(), track.name.back());
      values.insert(number(trace, slice, "value"));
    }
  }
  EXPECT_EQ(values.size(), std::size_t{kThreads} * kSpans);
}

TEST(Recorder, ThreadsAreNumberedAsTheyAppear) {
  Recorder recorder(0);
  { Span span(&recorder, "a", "test"); }
  // One after the other: the kernel may give the second the id of the first.
  for (int i = 0; i < 2; ++i) std::thread([&] { Span span(&recorder, "a", "test"); }).join();
  const RankTrace trace = recorder.snapshot();
  ASSERT_EQ(trace.tracks.size(), 3U);
  EXPECT_EQ(trace.tracks[0].name, "main");
  EXPECT_EQ(trace.tracks[1].name, "thread 2");
  EXPECT_EQ(trace.tracks[2].name, "thread 3");
}

TEST(Recorder, AFullBufferDropsAndCounts) {
  Recorder recorder(0, 10);
  for (int i = 0; i < 25; ++i) Span span(&recorder, "a", "test", {{"i", i + 1}});
  std::thread([&] {
    for (int i = 0; i < 12; ++i) recorder.flight("f", "test", Clock::now(), Clock::now());
  }).join();
  const RankTrace trace = recorder.snapshot();
  EXPECT_EQ(trace.dropped, 15U + 2U);
  EXPECT_EQ(trace.flights.size(), 10U);
  ASSERT_EQ(trace.tracks.size(), 1U);
  ASSERT_EQ(trace.tracks[0].slices.size(), 10U);
  EXPECT_EQ(number(trace, trace.tracks[0].slices[9], "i"), 10);

  Recorder none(0, 0);
  { Span span(&none, "a", "test"); }
  EXPECT_EQ(none.snapshot().dropped, 1U);
}

TEST(Recorder, OneThreadFeedsManyRecorders) {
  std::vector<std::unique_ptr<Recorder>> recorders;  // more than a thread remembers
  for (int rank = 0; rank < 9; ++rank) recorders.push_back(std::make_unique<Recorder>(rank));
  for (int i = 0; i < 100; ++i)
    for (int rank = 0; rank < 9; ++rank)
      Span span(recorders[static_cast<std::size_t>(rank)].get(), "a", "test", {{"rank", rank + 1}});
  for (int rank = 0; rank < 9; ++rank) {
    const RankTrace trace = recorders[static_cast<std::size_t>(rank)]->snapshot();
    ASSERT_EQ(trace.tracks.size(), 1U) << "of rank " << rank;
    ASSERT_EQ(trace.tracks[0].slices.size(), 100U);
    for (const Slice& slice : trace.tracks[0].slices) ASSERT_EQ(number(trace, slice, "rank"), rank + 1);
  }
}

TEST(Recorder, OneThatTookTheAddressOfAnotherStartsEmpty) {
  std::optional<Recorder> recorder;
  for (int round = 1; round <= 3; ++round) {
    recorder.emplace(round);
    for (int i = 0; i < round; ++i) Span span(&*recorder, "a", "test");
    const RankTrace trace = recorder->snapshot();
    EXPECT_EQ(trace.rank, round);
    ASSERT_EQ(trace.tracks.size(), 1U);
    EXPECT_EQ(trace.tracks[0].slices.size(), static_cast<std::size_t>(round));
    recorder.reset();
  }
}

TEST(Recorder, FlightsStandApartInOrderOfStart) {
  Recorder recorder(0);
  const Clock::time_point t = Clock::now();
  recorder.flight("late", "work", t + 2us, t + 3us);
  recorder.flight("early", "work", t, t + 10us, {{"bytes", 5}});
  recorder.flight("backwards", "work", t + 1us, t);
  const RankTrace trace = recorder.snapshot();
  EXPECT_TRUE(trace.tracks.empty());
  ASSERT_EQ(trace.flights.size(), 3U);
  EXPECT_EQ(trace.text(trace.flights[0].name), "early");
  EXPECT_EQ(trace.flights[0].start, t.time_since_epoch());
  EXPECT_EQ(trace.flights[0].end - trace.flights[0].start, 10us);
  EXPECT_EQ(number(trace, trace.flights[0], "bytes"), 5);
  EXPECT_EQ(trace.text(trace.flights[1].name), "backwards");
  EXPECT_EQ(trace.flights[1].end, trace.flights[1].start);
}

TEST(Recorder, EqualTextsAreKeptOnceWhateverTheirAddress) {
  Recorder recorder(0);
  const std::string name = "step";
  EXPECT_EQ(recorder.intern("step"), recorder.intern(name));
  { Span span(&recorder, recorder.intern(name), "test"); }
  { Span span(&recorder, "step", "test"); }
  { Span span(&recorder, "test", "step"); }
  { Span span(&recorder, "", nullptr); }
  const RankTrace trace = recorder.snapshot();
  EXPECT_EQ(trace.strings, (std::vector<std::string>{"", "step", "test"}));
  const std::vector<Slice>& slices = trace.tracks.at(0).slices;
  EXPECT_EQ(slices[0].name, slices[1].name);
  EXPECT_EQ(slices[3].name, 0U);
  EXPECT_EQ(slices[3].category, 0U);
}

}  // namespace
}  // namespace lockstep::trace
