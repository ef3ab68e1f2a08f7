#include "lockstep/trace/chrome.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "lockstep/base/clock.h"
#include "lockstep/error.h"
#include "lockstep/trace.h"

namespace lockstep::trace {
namespace {

using nlohmann::json;
using std::chrono::nanoseconds;

json chrome(const std::vector<RankTrace>& ranks, const std::vector<ClockOffset>& offsets = {}) {
  std::ostringstream out;
  write_chrome_trace(out, ranks, offsets);
  return json::parse(out.str());
}

// The events of one phase, "X" or "M".
std::vector<json> events(const json& document, const char* phase) {
  std::vector<json> found;
  for (const json& event : document.at("traceEvents"))
    if (event.at("ph") == phase) found.push_back(event);
  return found;
}

// A track's or process's metadata, by (pid, tid).
std::map<std::pair<int, int>, json> metadata(const json& document, const char* name, const char* key) {
  std::map<std::pair<int, int>, json> found;
  for (const json& event : events(document, "M"))
    if (event.at("name") == name) found[{event.at("pid"), event.at("tid")}] = event.at("args").at(key);
  return found;
}

RankTrace one_slice(Rank rank, std::int64_t start, std::int64_t end) {
  RankTrace trace{.rank = rank, .pid = 100 + rank, .host = "here"};
  trace.strings = {"", "step", "train"};
  trace.tracks = {{"main", {{.start = nanoseconds(start), .end = nanoseconds(end), .name = 1, .category = 2}}}};
  return trace;
}

TEST(Chrome, ShowsWhatWasRecorded) {
  Recorder recorder(2);
  {
    Span step(&recorder, "step", "train");
    Span reduce(&recorder, "all_reduce", "collective", {{"bytes", 4096}, {"algorithm", "ring"}});
  }
  const Clock::time_point now = Clock::now();
  recorder.flight("all_reduce", "work", now, now + 2us, {{"sequence", -1}});
  recorder.flight("all_reduce", "work", now + 1us, now + 3us);
  const json document = chrome({recorder.snapshot()});
  EXPECT_EQ(document.at("displayTimeUnit"), "ms");

  const auto slices = events(document, "X");
  ASSERT_EQ(slices.size(), 4U);
  for (const json& event : slices) EXPECT_EQ(event.at("pid"), 2);
  EXPECT_EQ(slices[0].at("name"), "step");
  EXPECT_EQ(slices[0].at("cat"), "train");
  EXPECT_EQ(slices[0].at("ts"), 0.0);
  EXPECT_EQ(slices[1].at("args"), (json{{"bytes", 4096}, {"algorithm", "ring"}}));
  EXPECT_EQ(slices[2].at("args"), (json{{"sequence", -1}}));
  EXPECT_EQ(slices[2].at("dur"), 2.0);

  const auto names = metadata(document, "thread_name", "name");
  ASSERT_EQ(names.size(), 3U);
  EXPECT_EQ(names.at({2, slices[0].at("tid")}), "main");
  EXPECT_EQ(names.at({2, slices[2].at("tid")}), "in flight 1");
  EXPECT_EQ(names.at({2, slices[3].at("tid")}), "in flight 2");
  EXPECT_EQ(metadata(document, "thread_sort_index", "sort_index").size(), 3U);
  EXPECT_EQ(metadata(document, "process_name", "name").begin()->second, "rank 2");
  EXPECT_EQ(metadata(document, "process_sort_index", "sort_index").begin()->second, 2);
}

TEST(Chrome, TimesStartAtZeroOnTheCommonClockToTheNanosecond) {
  // Rank 1's clock is 1 ms behind: its slice is the first by its own clock, the second by rank 0's.
  const std::int64_t uptime = 40'000'000'000'000'000;  // more digits than a double has
  const std::vector<RankTrace> ranks = {one_slice(0, uptime + 500'000, uptime + 500'001),
                                        one_slice(1, uptime, uptime + 1'234'567)};
  const json document = chrome(ranks, {ClockOffset{0}, ClockOffset{1'000'007}});
  const auto slices = events(document, "X");
  ASSERT_EQ(slices.size(), 2U);
  EXPECT_EQ(slices[0].at("pid"), 0);
  EXPECT_DOUBLE_EQ(slices[0].at("ts"), 0);
  EXPECT_DOUBLE_EQ(slices[0].at("dur"), 0.001);
  EXPECT_EQ(slices[1].at("pid"), 1);
  EXPECT_DOUBLE_EQ(slices[1].at("ts"), 500.007);
  EXPECT_DOUBLE_EQ(slices[1].at("dur"), 1234.567);
  EXPECT_EQ(document.at("otherData").at("ranks")[1].at("clock_offset_ns"), 1'000'007);

  EXPECT_DOUBLE_EQ(events(chrome(ranks), "X")[0].at("ts"), 500.0);
  EXPECT_THROW(chrome(ranks, {ClockOffset{0}}), UsageError);
}

TEST(Chrome, TellsHowManyWereDropped) {
  Recorder recorder(0, 1);
  for (int i = 0; i < 4; ++i) Span span(&recorder, "a", "test");
  const json other = chrome({recorder.snapshot(), one_slice(1, 0, 1)}).at("otherData");
  EXPECT_EQ(other.at("dropped"), 3);
  EXPECT_EQ(other.at("ranks")[0].at("dropped"), 3);
  EXPECT_EQ(other.at("ranks")[1].at("dropped"), 0);
  EXPECT_EQ(other.at("ranks")[1].at("host"), "here");
}

TEST(Chrome, EscapesEveryString) {
  const std::string odd = "\"quoted\" \\ \n\t \x01 {} caf\xc3\xa9";
  RankTrace trace = one_slice(0, 0, 1);
  trace.host = odd;
  trace.strings = {"", odd, "bad utf-8: \xff"};
  trace.tracks[0].name = odd;
  trace.tracks[0].slices[0].args[0] = {1, 1, 1};
  const json document = chrome({trace});
  const json event = events(document, "X").at(0);
  EXPECT_EQ(event.at("name"), odd);
  EXPECT_EQ(event.at("args").at(odd), odd);
  EXPECT_EQ(event.at("cat"), "bad utf-8: \xef\xbf\xbd");
  EXPECT_EQ(metadata(document, "thread_name", "name").begin()->second, odd);
}

TEST(Chrome, NoSpansIsStillATrace) {
  EXPECT_TRUE(chrome({}).at("traceEvents").empty());
  EXPECT_TRUE(events(chrome({RankTrace{}}), "X").empty());
}

// Larger than the piece that is written at a time.
TEST(Chrome, ManySpansAllArrive) {
  RankTrace trace = one_slice(0, 0, 1);
  trace.tracks[0].slices.resize(30'000, trace.tracks[0].slices[0]);
  EXPECT_EQ(events(chrome({trace}), "X").size(), 30'000U);
}

class ChromeFile : public ::testing::Test {
 protected:
  ChromeFile() {
    std::string name = (std::filesystem::temp_directory_path() / "lockstep-trace-XXXXXX").string();
    folder_ = ::mkdtemp(name.data());
  }
  ~ChromeFile() override { std::filesystem::remove_all(folder_); }
  std::size_t files() const {
    return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator(folder_), {}));
  }
  std::filesystem::path folder_;
};

TEST_F(ChromeFile, ReplacesWhatWasThereAndLeavesNothingElse) {
  const std::string file = folder_ / "trace.json";
  std::ofstream(file) << std::string(100'000, 'x');
  write_chrome_trace(file, {one_slice(0, 0, 1)});
  std::ifstream in(file);
  EXPECT_EQ(events(json::parse(in), "X").size(), 1U);
  EXPECT_EQ(files(), 1U);
}

TEST_F(ChromeFile, AnUnwritablePathIsAnErrorThatNamesIt) {
  const std::string nowhere = folder_ / "none" / "trace.json";
  const std::string taken = folder_ / "taken";
  std::filesystem::create_directory(taken);
  for (const std::string& file : {nowhere, taken}) {
    try {
      write_chrome_trace(file, {one_slice(0, 0, 1)});
      FAIL() << file << " was written";
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(file), std::string::npos) << error.what();
      EXPECT_NE(std::string(error.what()).find("try:"), std::string::npos) << error.what();
    }
  }
  EXPECT_EQ(files(), 1U) << "only the folder that was there";
}

}  // namespace
}  // namespace lockstep::trace
