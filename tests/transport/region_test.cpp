#include "lockstep/transport/shm/region.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>

#include "lockstep/base/error.h"

namespace lockstep::transport::shm {
namespace {

TEST(Region, IsSharedThroughItsDescriptor) {
  const auto made = Region::create(10'000, "");
  int pair[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
  const Fd here(pair[0]);
  const Fd there(pair[1]);
  send_descriptor(here, made->fd());
  const auto other = Region::map(receive_descriptor(there));
  EXPECT_EQ(other->size(), 10'000U);
  EXPECT_NE(other->data(), made->data());
  std::memcpy(made->data() + 9'000, "hello", 6);
  EXPECT_STREQ(reinterpret_cast<const char*>(other->data() + 9'000), "hello");
}

TEST(Region, CanLieOnATmpfsAndLeavesNoFile) {
  const auto region = Region::create(4096, "/dev/shm");
  EXPECT_EQ(region->data()[4095], std::byte{0});
}

TEST(Region, IsFoundByThreadsOfItsProcessWhileItLives) {
  auto region = Region::create(4096, "");
  list_region("name", region);
  EXPECT_EQ(find_region("name"), region);
  EXPECT_EQ(find_region("another"), nullptr);
  region.reset();
  EXPECT_EQ(find_region("name"), nullptr);
}

// Fault 22: never a SIGBUS; an error with the bytes needed.
TEST(Region, TooLittleMemoryIsAnErrorWithTheBytes) {
  try {
    Region::create(std::size_t{1} << 50, "");
    FAIL() << "a petabyte was to be had";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("1024.0 TiB (1125899906842624 bytes)"), std::string::npos) << error.what();
  }
}

// In a child, for the limit stays.
TEST(Region, ALimitOnFileSizeIsAnErrorAndNotASignal) {
  const pid_t child = ::fork();
  if (child == 0) {
    const rlimit limit{1 << 20, 1 << 20};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    try {
      Region::create(8 << 20, "");
    } catch (const Error&) {
      ::_exit(0);
    }
    ::_exit(1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0) << "signal " << WTERMSIG(status);
}

}  // namespace
}  // namespace lockstep::transport::shm
