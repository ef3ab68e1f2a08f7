#include "lockstep/transport/shm/region.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <limits>
#include <map>
#include <mutex>

#include "lockstep/error.h"

#ifndef MADV_POPULATE_WRITE  // Linux 5.14, glibc 2.35
#define MADV_POPULATE_WRITE 23
#endif

namespace lockstep::transport::shm {
namespace {

std::string need(std::size_t bytes) { return fmt::format("a shared region of {}", describe_bytes(bytes)); }

constexpr std::size_t kLargePage = std::size_t{2} << 20;

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

Fd make_memfd() { return Fd(::memfd_create("lockstep", MFD_CLOEXEC | MFD_ALLOW_SEALING)); }

// Whether regions are memfds. Files in a directory cannot be sealed; they are used only if memfds are not available, or
// if the user chose a directory.
bool uses_memfd(const std::string& dir) { return dir.empty() && make_memfd(); }

Fd make_file(std::size_t bytes, const std::string& dir) {
  if (dir.empty()) {
    Fd fd = make_memfd();
    if (fd) return fd;
    if (errno != ENOSYS && errno != EPERM) throw SystemError(errno, "cannot make " + need(bytes));
  }
  const std::string where = dir.empty() ? "/dev/shm" : dir;
  Fd fd(::open(where.c_str(), O_TMPFILE | O_RDWR | O_EXCL | O_CLOEXEC, 0600));  // a file without a name
  if (!fd) throw SystemError(errno, fmt::format("cannot make {} in {}", need(bytes), where), "LOCKSTEP_TRANSPORT=tcp");
  return fd;
}

// Asks the kernel for large pages, which cost fewer page faults and fewer entries of the TLB. Without them everything
// works as well, so errors are ignored. Some settings give them only to a mapping that has asked, or only inside a
// file, so they must be there before posix_fallocate() reserves small ones. The last pages, which do not fill a large
// one, stay small.
void take_large_pages(const Fd& fd, std::size_t bytes) {
  const std::string setting = large_page_setting();
  const std::size_t whole = bytes / kLargePage * kLargePage;
  if (whole == 0 || (setting != "advise" && setting != "within_size")) return;
  if (::ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0) return;
  void* mapped = ::mmap(nullptr, whole, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (mapped == MAP_FAILED) return;
  if (::madvise(mapped, whole, MADV_HUGEPAGE) == 0) ::madvise(mapped, whole, MADV_POPULATE_WRITE);
  ::munmap(mapped, whole);
}

std::size_t read_number(const char* path) {
  std::size_t value = 0;
  std::ifstream file(path);
  return file >> value ? value : std::numeric_limits<std::size_t>::max();  // "max" is not a number, and means no limit
}

}  // namespace

Unavailable::Unavailable(Rank whose, const std::string& why)
    : Error(ErrorFacts{
          .message = why.starts_with(fmt::format("rank {}:", whose)) || why.starts_with(fmt::format("rank {} ", whose))
                         ? why
                         : fmt::format("rank {}: {}", whose, why),
          .peer = whose}) {}

std::size_t available_memory() {
  std::size_t available = std::numeric_limits<std::size_t>::max();
  std::ifstream info("/proc/meminfo");
  for (std::string line; std::getline(info, line);)
    if (std::size_t kib = 0; std::sscanf(line.c_str(), "MemAvailable: %zu kB", &kib) == 1) available = kib << 10;
  const auto under_limit = [&](const char* limit_path, const char* used_path) {
    const std::size_t limit = read_number(limit_path);
    const std::size_t used = read_number(used_path);
    if (limit != std::numeric_limits<std::size_t>::max() && used != std::numeric_limits<std::size_t>::max())
      available = std::min(available, limit > used ? limit - used : 0);
  };
  under_limit("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current");
  under_limit("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes");
  return available;
}

std::string large_page_setting() {
  // The file lists all settings, with the chosen one in brackets: always within_size [advise] never
  std::ifstream file("/sys/kernel/mm/transparent_hugepage/shmem_enabled");
  for (std::string word; file >> word;)
    if (word.starts_with('[') && word.ends_with(']')) return word.substr(1, word.size() - 2);
  return "";
}

std::size_t bytes_in_large_pages(const Region& region) {
  std::ifstream smaps("/proc/self/smaps");
  const std::string begin = fmt::format("{:x}-", reinterpret_cast<std::uintptr_t>(region.data()));
  bool inside = false;
  for (std::string line; std::getline(smaps, line);) {
    if (line.starts_with(begin)) inside = true;
    if (std::size_t kib = 0; inside && std::sscanf(line.c_str(), "ShmemPmdMapped: %zu kB", &kib) == 1) return kib << 10;
  }
  return 0;
}

std::shared_ptr<Region> Region::create(std::size_t bytes, const std::string& dir) {
  // A reservation above a cgroup's limit would not fail: it would get the process killed. So check first.
  if (const std::size_t available = available_memory(); bytes > available)
    throw Error(fmt::format("{} is needed and only {} of memory is free", need(bytes), describe_bytes(available)),
                "fewer ranks, or LOCKSTEP_TRANSPORT=tcp");
  rlimit limit{};
  if (::getrlimit(RLIMIT_FSIZE, &limit) == 0 && bytes > limit.rlim_cur)  // exceeding it would raise SIGXFSZ
    throw Error(fmt::format("{} is needed and the limit on files is {}", need(bytes), describe_bytes(limit.rlim_cur)),
                "a higher `ulimit -f`, or LOCKSTEP_TRANSPORT=tcp");
  Fd fd = make_file(bytes, dir);
  take_large_pages(fd, bytes);
  const int error = ::posix_fallocate(fd.get(), 0, static_cast<off_t>(bytes));
  if (error != 0)
    throw SystemError(error, fmt::format("cannot reserve {}", need(bytes)),
                      "more room there, or LOCKSTEP_TRANSPORT=tcp");
  const int seals = ::fcntl(fd.get(), F_GET_SEALS);
  if (seals >= 0 && (seals & F_SEAL_SEAL) == 0 && ::fcntl(fd.get(), F_ADD_SEALS, kSeals) != 0)
    throw SystemError(errno, fmt::format("cannot seal {}", need(bytes)), "LOCKSTEP_TRANSPORT=tcp");
  return std::shared_ptr<Region>(new Region(std::move(fd), bytes));
}

std::shared_ptr<Region> Region::map(Fd fd, std::size_t bytes, const std::string& dir) {
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) throw SystemError(errno, "cannot look at a shared region");
  const auto refuse = [&](const std::string& why) {
    throw Error(fmt::format("{} was expected, and what arrived {}", need(bytes), why),
                "the same version of Lockstep and the same LOCKSTEP_ variables on every rank");
  };
  if (!S_ISREG(info.st_mode)) refuse("is not a file");
  if (static_cast<std::size_t>(info.st_size) != bytes)
    refuse(fmt::format("has {}", describe_bytes(static_cast<std::size_t>(info.st_size))));
  if (static_cast<std::size_t>(info.st_blocks) * 512 < bytes) refuse("is not reserved");
  const int seals = ::fcntl(fd.get(), F_GET_SEALS);
  if (uses_memfd(dir) && (seals < 0 || (seals & kSeals) != kSeals)) refuse("can still change its size");
  return std::shared_ptr<Region>(new Region(std::move(fd), bytes));
}

Region::Region(Fd fd, std::size_t bytes) : fd_(std::move(fd)), size_(bytes) {
  void* mapped = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd_.get(), 0);
  if (mapped == MAP_FAILED)
    throw SystemError(errno, fmt::format("cannot map {}", need(bytes)),
                      "a higher `ulimit -v`, or LOCKSTEP_TRANSPORT=tcp");
  data_ = static_cast<std::byte*>(mapped);
}

Region::~Region() { ::munmap(data_, size_); }

namespace {

struct Listed {
  std::mutex mutex;  // guards regions
  std::map<std::string, std::weak_ptr<Region>> regions;
};
Listed& listed() {
  static Listed instance;
  return instance;
}

}  // namespace

void list_region(const std::string& name, const std::shared_ptr<Region>& region) {
  const std::lock_guard lock(listed().mutex);
  std::erase_if(listed().regions, [](const auto& entry) { return entry.second.expired(); });
  listed().regions[name] = region;
}

std::shared_ptr<Region> find_region(const std::string& name) {
  const std::lock_guard lock(listed().mutex);
  const auto found = listed().regions.find(name);
  return found == listed().regions.end() ? nullptr : found->second.lock();
}

namespace {

// A message of one byte with room for one descriptor beside it, in the form that sendmsg and recvmsg need.
struct DescriptorMessage {
  char byte = 'r';
  iovec vector{&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr header{};
  DescriptorMessage() {
    header.msg_iov = &vector;
    header.msg_iovlen = 1;
    header.msg_control = control;
    header.msg_controllen = sizeof control;
  }
};

}  // namespace

void send_descriptor(const Fd& socket, const Fd& descriptor) {
  DescriptorMessage message;
  cmsghdr* item = CMSG_FIRSTHDR(&message.header);
  item->cmsg_level = SOL_SOCKET;
  item->cmsg_type = SCM_RIGHTS;
  item->cmsg_len = CMSG_LEN(sizeof(int));
  const int raw = descriptor.get();
  std::memcpy(CMSG_DATA(item), &raw, sizeof raw);
  while (::sendmsg(socket.get(), &message.header, MSG_NOSIGNAL) < 0)
    if (errno != EINTR) throw SystemError(errno, "cannot hand over a shared region");
}

Fd receive_descriptor(const Fd& socket) {
  DescriptorMessage message;
  ssize_t got = 0;
  while ((got = ::recvmsg(socket.get(), &message.header, MSG_CMSG_CLOEXEC)) < 0)
    if (errno != EINTR) throw SystemError(errno, "cannot take over a shared region");
  const cmsghdr* item = CMSG_FIRSTHDR(&message.header);
  if (got == 0 || item == nullptr || item->cmsg_type != SCM_RIGHTS)
    throw Error("the rank that made the shared region closed the connection before it handed it over");
  int raw = -1;
  std::memcpy(&raw, CMSG_DATA(item), sizeof raw);
  return Fd(raw);
}

}  // namespace lockstep::transport::shm
