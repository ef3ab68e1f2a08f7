#include "lockstep/transport/shm/region.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>
#include <utility>

#include "lockstep/error.h"

namespace lockstep::transport::shm {
namespace {

TEST(Region, IsSharedThroughItsDescriptor) {
  const auto made = Region::create(10'000, "");
  int pair[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
  const Fd here(pair[0]);
  const Fd there(pair[1]);
  send_descriptor(here, made->fd());
  const auto other = Region::map(receive_descriptor(there), 10'000, "");
  EXPECT_EQ(other->size(), 10'000U);
  EXPECT_NE(other->data(), made->data());
  std::memcpy(made->data() + 9'000, "hello", 6);
  EXPECT_STREQ(reinterpret_cast<const char*>(other->data() + 9'000), "hello");
}

std::string objection_to(Fd fd, std::size_t bytes) {
  try {
    Region::map(std::move(fd), bytes, "");
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

// Whoever has the descriptor could otherwise make the file smaller, and the others would die of SIGBUS.
TEST(Region, CannotBeResizedByWhoeverHasIt) {
  const auto region = Region::create(10'000, "");
  EXPECT_NE(::ftruncate(region->fd().get(), 0), 0);
  EXPECT_NE(::ftruncate(region->fd().get(), 20'000), 0);
  EXPECT_NE(::fcntl(region->fd().get(), F_ADD_SEALS, F_SEAL_WRITE), 0) << "nobody can add a seal";
}

TEST(Region, WhatArrivesIsCheckedBeforeItIsUsed) {
  EXPECT_EQ(objection_to(Fd(::dup(Region::create(8192, "")->fd().get())), 8192), "");
  EXPECT_NE(objection_to(Fd(::dup(Region::create(4096, "")->fd().get())), 8192).find("has 4.0 KiB"), std::string::npos);
  Fd unsealed(::memfd_create("test", MFD_ALLOW_SEALING));
  ASSERT_EQ(::posix_fallocate(unsealed.get(), 0, 8192), 0);
  EXPECT_NE(objection_to(Fd(::dup(unsealed.get())), 8192).find("can still change its size"), std::string::npos);
  Fd sparse(::memfd_create("test", MFD_ALLOW_SEALING));
  ASSERT_EQ(::ftruncate(sparse.get(), 8192), 0);
  EXPECT_NE(objection_to(std::move(sparse), 8192).find("is not reserved"), std::string::npos);
  EXPECT_NE(objection_to(Fd(::open("/dev/null", O_RDWR)), 8192).find("is not a file"), std::string::npos);
}

TEST(Region, CanLieOnATmpfsAndLeavesNoFile) {
  if (::access("/dev/shm", W_OK) != 0) GTEST_SKIP() << "no /dev/shm to write to here: " << std::strerror(errno);
  const auto region = Region::create(4096, "/dev/shm");
  EXPECT_EQ(region->data()[4095], std::byte{0});
  EXPECT_NO_THROW(Region::map(Fd(::dup(region->fd().get())), 4096, "/dev/shm"));
}

void touch(const Region& region) {
  for (std::size_t at = 0; at < region.size(); at += 4096) {
    EXPECT_EQ(region.data()[at], std::byte{0});
    region.data()[at] = std::byte{1};
  }
}

// Whether this kernel has large pages for a memfd that asks for them in the plainest way.
bool kernel_gives_large_pages() {
  constexpr std::size_t kBytes = std::size_t{8} << 20;
  const Fd fd(::memfd_create("control", MFD_CLOEXEC));
  if (::ftruncate(fd.get(), kBytes) != 0) return false;
  auto* mapped = static_cast<volatile char*>(::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0));
  ::madvise(const_cast<char*>(mapped), kBytes, MADV_HUGEPAGE);
  for (std::size_t at = 0; at < kBytes; at += 4096) mapped[at] = 1;
  std::ifstream smaps("/proc/self/smaps");
  bool found = false;
  for (std::string line; std::getline(smaps, line);)
    if (std::size_t kib = 0; std::sscanf(line.c_str(), "ShmemPmdMapped: %zu kB", &kib) == 1 && kib > 0) found = true;
  ::munmap(const_cast<char*>(mapped), kBytes);
  return found;
}

TEST(Region, LiesInLargePagesWhereTheKernelGivesThem) {
  constexpr std::size_t kBytes = (std::size_t{8} << 20) + 5000;
  const bool given = kernel_gives_large_pages();
  const auto region = Region::create(kBytes, "");
  EXPECT_EQ(region->size(), kBytes);
  touch(*region);
  EXPECT_NO_THROW(Region::map(Fd(::dup(region->fd().get())), kBytes, "")) << "its size and its seals stay the same";
  const std::size_t large = bytes_in_large_pages(*region);
  if (given)
    EXPECT_GE(large, std::size_t{2} << 20) << "shmem_enabled is " << large_page_setting();
  else
    EXPECT_EQ(large, 0U) << "shmem_enabled is " << large_page_setting();
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
