// A piece of memory that several ranks have mapped. It is made by memfd, handed over as a descriptor, and gone when its
// last mapping is gone. Nothing has a name, so nothing can be left behind.
//
// All of its memory is reserved when it is made. If there is too little, that is an error with the bytes needed, and
// never a SIGBUS later. A memfd is sealed after that, so that nobody who has the descriptor can make it smaller while
// others have it mapped.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <utility>

#include "lockstep/base/fd.h"
#include "lockstep/error.h"
#include "lockstep/types.h"

namespace lockstep::transport::shm {

// Shared memory is not available; the text says why. Thrown on all ranks or on none.
class Unavailable : public Error {
 public:
  Unavailable(Rank whose, const std::string& why);  // adds the rank to the text, unless `why` begins with it
  Rank culprit() const { return facts().peer; }     // the rank whose attempt failed
  std::exception_ptr with_facts(ErrorFacts facts) const override { return copy_with(*this, std::move(facts)); }
};

class Region {
 public:
  // Makes a region. `dir` is a directory on a tmpfs to use instead of memfd, or empty. Throws a SystemError or an Error
  // with the bytes needed.
  static std::shared_ptr<Region> create(std::size_t bytes, const std::string& dir);
  // Maps a region that another process made with the same arguments. What arrived is checked before it is used: it must
  // have the right size, be reserved completely, and, if it is a memfd, be sealed. Throws an Error that says what is
  // wrong.
  static std::shared_ptr<Region> map(Fd fd, std::size_t bytes, const std::string& dir);
  ~Region();
  Region(const Region&) = delete;

  std::byte* data() const { return data_; }
  std::size_t size() const { return size_; }
  const Fd& fd() const { return fd_; }

 private:
  Region(Fd fd, std::size_t bytes);
  Fd fd_;
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

// Ranks that are threads of one process must share one mapping, because the thread sanitizer knows memory by its
// address. The rank that made the region lists it under a name, and the others find it there. The entry lives as long
// as the region.
void list_region(const std::string& name, const std::shared_ptr<Region>& region);
std::shared_ptr<Region> find_region(const std::string& name);

// Hand over a descriptor through a Unix socket. Both throw Error if that fails.
void send_descriptor(const Fd& socket, const Fd& descriptor);
Fd receive_descriptor(const Fd& socket);

// The number of bytes that may still be reserved: what the system has free, or what is left under the cgroup's limit if
// that is less.
std::size_t available_memory();

// When the kernel gives large pages to shared memory: "always", "within_size" and "force", "advise" (to programs that
// ask, as regions do), "never" and "deny", or empty if the kernel does not say.
std::string large_page_setting();
// How much of a region this process has mapped in large pages. Only what was touched counts.
std::size_t bytes_in_large_pages(const Region& region);

}  // namespace lockstep::transport::shm
