#include "lockstep/transport/shm/region.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <string>

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
  if (::access("/dev/shm", W_OK) != 0) GTEST_SKIP() << "no /dev/shm to write to here: " << std::strerror(errno);
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

// Under a limit, in a child, for limits stay. 0 when creating a region of 64 MiB was an error and not a signal.
int status_under(int resource, rlim_t limit) {
  const pid_t child = ::fork();
  if (child == 0) {
    const rlimit both{limit, limit};
    ::setrlimit(static_cast<__rlimit_resource>(resource), &both);
    try {
      Region::create(64 << 20, "");
    } catch (const Error& error) {
      ::_exit(std::string(error.what()).find("64.0 MiB (67108864 bytes)") != std::string::npos ? 0 : 2);
    }
    ::_exit(1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return status;
}

TEST(Region, ALimitOnFileSizeIsAnErrorAndNotASignal) { EXPECT_EQ(status_under(RLIMIT_FSIZE, 1 << 20), 0); }

TEST(Region, ALimitOnAddressSpaceIsAnErrorAndNotASignal) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer needs the address space itself";
#endif
  std::size_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  EXPECT_EQ(status_under(RLIMIT_AS, pages * 4096 + (32 << 20)), 0);
}

}  // namespace
}  // namespace lockstep::transport::shm
