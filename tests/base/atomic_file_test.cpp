// Files that appear whole or not at all, and leave nothing else behind.
#include "lockstep/base/atomic_file.h"

#include <gmock/gmock.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "lockstep/error.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;

class AtomicFileTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::path(testing::TempDir()) / ("atomic_file." + std::to_string(::getpid()));
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  std::vector<std::string> names() const {
    std::vector<std::string> found;
    for (const auto& entry : fs::directory_iterator(folder_)) found.push_back(entry.path().filename());
    std::sort(found.begin(), found.end());
    return found;
  }
  static std::string read(const std::string& path) {
    std::stringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
  }

  fs::path folder_;
};

TEST_F(AtomicFileTest, ReplacesAFile) {
  write_file(path("a"), "old");
  {
    AtomicFile file(path("a"));
    file.write(std::string_view("new "));
    EXPECT_EQ(read(path("a")), "old");
    file.write(std::string_view("text"));
    file.commit();
  }
  EXPECT_EQ(read(path("a")), "new text");
  EXPECT_THAT(names(), ElementsAre("a"));
}

TEST_F(AtomicFileTest, WithoutCommitNothingChanges) {
  write_file(path("a"), "old");
  {
    AtomicFile file(path("a"));
    file.write(std::string_view("new"));
  }
  EXPECT_EQ(read(path("a")), "old");
  EXPECT_THAT(names(), ElementsAre("a"));
}

// SIGINT and SIGTERM end a rank in the middle of a write; SIGXFSZ comes from a limit, SIGKILL from anybody.
TEST_F(AtomicFileTest, AProcessThatIsKilledLeavesTheOldFileAndNothingElse) {
  write_file(path("a"), "old");
  for (const int signal : {SIGINT, SIGTERM, SIGKILL, SIGXFSZ}) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      const rlimit none{};
      ::setrlimit(RLIMIT_CORE, &none);
      ::signal(signal, SIG_DFL);
      AtomicFile file(path("a"));
      file.write(std::string_view("half of the new"));
      ::raise(signal);
      ::_exit(0);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == signal) << status;
    EXPECT_EQ(read(path("a")), "old");
    EXPECT_THAT(names(), ElementsAre("a")) << "after signal " << signal;
  }
}

TEST_F(AtomicFileTest, HasTheModeOfAnyNewFile) {
  const mode_t before = ::umask(027);
  write_file(path("a"), "x");
  ::umask(before);
  struct stat info {};
  ASSERT_EQ(::stat(path("a").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777U, 0640U);
}

TEST_F(AtomicFileTest, ALinkIsFollowed) {
  write_file(path("a"), "old");
  fs::create_symlink("a", path("link"));
  write_file(path("link"), "new");
  EXPECT_EQ(read(path("a")), "new");
  EXPECT_TRUE(fs::is_symlink(path("link")));
}

TEST_F(AtomicFileTest, WhatCannotBeIsSaid) {
  EXPECT_THROW(write_file(path("no/a"), "x"), SystemError);
  EXPECT_THROW(write_file("/dev/null", "x"), UsageError);
  EXPECT_NO_THROW(check_can_write("--out", ""));
  EXPECT_NO_THROW(check_can_write("--out", path("a")));
  const auto said = [](const std::string& path) {
    try {
      check_can_write("--out", path);
    } catch (const UsageError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_THAT(said(path("no/a")), HasSubstr("--out " + path("no/a") + ": there is no folder"));
  EXPECT_THAT(said(folder_.string()), HasSubstr("is a folder"));
  EXPECT_THAT(said("/dev/full"), HasSubstr("not a regular file"));
}

}  // namespace
}  // namespace lockstep
