#include "lockstep/launch/program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "lockstep/error.h"

namespace lockstep::launch {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// A folder with two search folders in it.
class FindProgram : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = (std::filesystem::temp_directory_path() / "lockstep-test-XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    root_ = name;
    for (const char* folder : {"one", "two", "two/folder"}) std::filesystem::create_directory(root_ / folder);
    make("two/prog", 0755);
    make("one/data.py", 0644);
    path_ = (root_ / "one").string() + ":" + (root_ / "two").string();
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  void make(const char* name, mode_t mode) const {
    std::ofstream(root_ / name) << "#!/bin/sh\n";
    ::chmod((root_ / name).c_str(), mode);
  }
  std::string complaint(const std::string& name) const {
    try {
      return "found " + find_program(name, path_);
    } catch (const UsageError& error) {
      return error.what();
    }
  }

  std::filesystem::path root_;
  std::string path_;
};

TEST_F(FindProgram, SearchesThePath) {
  EXPECT_EQ(find_program("prog", path_), (root_ / "two/prog").string());
  make("one/prog", 0755);
  EXPECT_EQ(find_program("prog", path_), (root_ / "one/prog").string());
}

TEST_F(FindProgram, TakesAPathAsItIs) {
  const std::string path = root_ / "two/prog";
  EXPECT_EQ(find_program(path, ""), path);
}

TEST_F(FindProgram, PassesOverWhatCannotBeExecuted) {
  make("one/prog", 0644);
  EXPECT_EQ(find_program("prog", path_), (root_ / "two/prog").string());
}

TEST_F(FindProgram, SaysWhatIsWrongAndWhatToTry) {
  EXPECT_THAT(complaint("nothing-like-it"), HasSubstr("there is no program 'nothing-like-it' in PATH"));
  EXPECT_THAT(complaint(root_ / "none"), HasSubstr("there is no program"));
  EXPECT_THAT(complaint(root_ / "two"), HasSubstr("is a folder"));
  EXPECT_THAT(complaint("folder"), HasSubstr("there is no program"));
  EXPECT_THAT(complaint("data.py"), AllOf(HasSubstr("not executable"), HasSubstr("try: python3 ")));
  EXPECT_THAT(complaint(""), HasSubstr("empty"));
}

TEST_F(FindProgram, PointsToTheFolderWeAreIn) {
  const auto before = std::filesystem::current_path();
  std::filesystem::current_path(root_ / "two");
  path_ = "/nowhere";
  EXPECT_THAT(complaint("prog"), HasSubstr("try: ./prog"));
  std::filesystem::current_path(root_ / "one");
  EXPECT_THAT(complaint("data.py"), HasSubstr("try: python3 data.py"));
  std::filesystem::current_path(before);
}

}  // namespace
}  // namespace lockstep::launch
