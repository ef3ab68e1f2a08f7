// Schedules from files: what can't be read is named with the file.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iostream>
#include <sstream>

#include "lockstep/error.h"
#include "lockstep/parallel/pipeline/schedule/csv.h"
#include "lockstep/schedule.h"

namespace lockstep::pipeline {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using ::testing::ThrowsMessage;

class ReadCsv : public ::testing::Test {
 protected:
  ReadCsv() {
    std::string name = (fs::temp_directory_path() / "lockstep-XXXXXX").string();
    folder = ::mkdtemp(name.data());
    path = (folder / "own.csv").string();
  }
  ~ReadCsv() override { fs::remove_all(folder); }
  void write(const std::string& text) const { std::ofstream(path, std::ios::binary) << text; }

  fs::path folder;
  std::string path;
};

TEST_F(ReadCsv, IsTheScheduleByTheFilesName) {
  const Schedule schedule = make_schedule("zb-h1", 3, 4);
  write(to_csv(schedule));
  EXPECT_EQ(read_csv(path), from_csv(to_csv(schedule), "own.csv"));
}

TEST_F(ReadCsv, ErrorsNameTheFileAndTheLine) {
  write("0F0,0B0\n1F0,1X0\n");
  EXPECT_THAT([&] { read_csv(path); },
              ThrowsMessage<UsageError>(AllOf(StartsWith(path + ": line 2, column 2: "), HasSubstr("'1X0'"))));
  write("");
  EXPECT_THAT([&] { read_csv(path); }, ThrowsMessage<UsageError>(StartsWith(path + ": there is no action in it")));
  write(std::string("\0\xff\n", 3));
  EXPECT_THAT([&] { read_csv(path); }, ThrowsMessage<UsageError>(StartsWith(path + ": line 1")));
}

TEST_F(ReadCsv, WhatIsNoFile) {
  EXPECT_THAT([&] { read_csv(path); }, ThrowsMessage<UsageError>(HasSubstr("cannot read " + path)));
  EXPECT_THAT([&] { read_csv(folder.string()); },
              ThrowsMessage<UsageError>(HasSubstr(folder.string() + " is a folder")));
}

TEST_F(ReadCsv, ADashIsStandardInput) {
  const auto from = [](const std::string& text) {
    std::istringstream typed(text);
    std::streambuf* const before = std::cin.rdbuf(typed.rdbuf());
    try {
      Schedule schedule = read_csv("-");
      std::cin.rdbuf(before);
      return schedule;
    } catch (...) {
      std::cin.rdbuf(before);
      throw;
    }
  };
  EXPECT_EQ(from("0F0,0B0\n"), from_csv("0F0,0B0\n", "stdin"));
  EXPECT_THAT([&] { from("0Q0\n"); }, ThrowsMessage<UsageError>(StartsWith("stdin: line 1, column 1: ")));
}

}  // namespace
}  // namespace lockstep::pipeline
