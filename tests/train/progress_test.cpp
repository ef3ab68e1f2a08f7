#include "lockstep/train/progress.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <pty.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "lockstep/base/fd.h"

namespace lockstep::train {
namespace {

struct Pipe {
  Pipe() {
    int ends[2];
    EXPECT_EQ(::pipe2(ends, O_NONBLOCK), 0);
    read = Fd(ends[0]);
    write = Fd(ends[1]);
  }
  std::string text() const {
    std::array<char, 4096> buffer{};
    const ssize_t n = ::read(read.get(), buffer.data(), buffer.size());
    return n > 0 ? std::string(buffer.data(), static_cast<std::size_t>(n)) : "";
  }
  Fd read, write;
};

TEST(Progress, PlainTextIsOneLineWithoutControlCharacters) {
  const Pipe pipe;
  Progress progress(pipe.write.get(), Progress::Style::plain, 50);
  progress.step(0.5, 32);
  progress.say("hello");
  EXPECT_EQ(pipe.text(), "hello\n");  // it is too early for a line of its own
  EXPECT_EQ(progress.text(0.5, 1234.4, 80), "step 1/50  loss 0.500000  1234 samples/s");
  EXPECT_EQ(progress.text({}, 1234.4, 80), "step 1/50  1234 samples/s");  // emulated compute has no loss
}

TEST(Progress, TheBarGrowsAndFitsItsLine) {
  Progress progress(-1, Progress::Style::bar, 2);
  const std::string empty = progress.text(1, 10, 80);
  EXPECT_EQ(empty.find("━"), std::string::npos);
  progress.step(1, 5);
  const std::string half = progress.text(1, 10, 80);
  EXPECT_NE(half.find("━"), std::string::npos);
  EXPECT_NE(half.find("─"), std::string::npos);
  progress.step(1, 5);
  EXPECT_EQ(progress.text(1, 10, 80).find("─"), std::string::npos);
  EXPECT_LT(progress.text(1, 10, 20).size(), 20U);
  EXPECT_EQ(half.find('\x1b'), std::string::npos);
  Progress colored(-1, Progress::Style::colored_bar, 2);
  colored.step(1, 5);
  EXPECT_NE(colored.text(1, 10, 80).find("\x1b[32m"), std::string::npos);
}

TEST(Progress, StyleFollowsTerminalAndNoColor) {
  const Pipe pipe;
  EXPECT_EQ(Progress::style_for(pipe.write.get()), Progress::Style::plain);
  EXPECT_EQ(Progress::style_for(-1), Progress::Style::plain);
  int master = -1;
  int slave = -1;
  if (::openpty(&master, &slave, nullptr, nullptr, nullptr) != 0)
    GTEST_SKIP() << "no pseudo-terminals here: openpty: " << std::strerror(errno);
  const Fd keep_master(master);
  const Fd keep_slave(slave);
  ::unsetenv("NO_COLOR");
  ::setenv("TERM", "xterm", 1);
  EXPECT_EQ(Progress::style_for(slave), Progress::Style::colored_bar);
  ::setenv("NO_COLOR", "1", 1);
  EXPECT_EQ(Progress::style_for(slave), Progress::Style::bar);
  ::setenv("TERM", "dumb", 1);
  EXPECT_EQ(Progress::style_for(slave), Progress::Style::plain);
}

TEST(Progress, NobodyReadsIsNoError) {
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_NONBLOCK), 0);
  const Fd write(ends[1]);
  ::signal(SIGPIPE, SIG_IGN);
  ::close(ends[0]);
  Progress progress(write.get(), Progress::Style::plain, 1);
  progress.say("to nobody");
}

}  // namespace
}  // namespace lockstep::train
