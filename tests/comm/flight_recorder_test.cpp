// The files with a rank's last collectives.
#include "lockstep/comm/flight_recorder.h"

#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

namespace lockstep::comm {
namespace {

namespace fs = std::filesystem;

std::size_t files_in(const fs::path& folder) {
  return static_cast<std::size_t>(std::distance(fs::directory_iterator(folder), fs::directory_iterator()));
}

TEST(FlightRecorder, KeepsTheNewestDumpsAndSaysSo) {
  const fs::path temporary = fs::path(testing::TempDir()) / ("flight." + std::to_string(::getpid()));
  fs::create_directories(temporary);
  ::setenv("TMPDIR", temporary.c_str(), 1);
  const FlightRecorder flight;
  std::string last;
  for (std::size_t i = 0; i < 2 * FlightRecorder::kDumps; ++i) last = flight.dump("", 3, "a test");
  ::unsetenv("TMPDIR");

  const fs::path folder = temporary / ("lockstep-" + std::to_string(::getuid()));
  EXPECT_EQ(files_in(folder), FlightRecorder::kDumps);
  EXPECT_EQ(files_in(temporary), 1U);
  EXPECT_THAT(last, testing::StartsWith((folder / "lockstep-rank3-").string()));
  EXPECT_THAT(last, testing::EndsWith(" (the newest 32 of such files are kept)"));
  EXPECT_TRUE(fs::exists(last.substr(0, last.find(' '))));
  struct stat info {};
  ASSERT_EQ(::stat(folder.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777U, 0700U);
  fs::remove_all(temporary);
}

TEST(FlightRecorder, AFolderOfTheUsersChoiceKeepsAll) {
  const fs::path folder = fs::path(testing::TempDir()) / ("flight-own." + std::to_string(::getpid()));
  fs::create_directories(folder);
  const FlightRecorder flight;
  for (std::size_t i = 0; i < FlightRecorder::kDumps + 3; ++i)
    EXPECT_TRUE(fs::exists(flight.dump(folder, 0, "a test")));
  EXPECT_EQ(files_in(folder), FlightRecorder::kDumps + 3);
  fs::remove_all(folder);
}

}  // namespace
}  // namespace lockstep::comm
