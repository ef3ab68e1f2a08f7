// A piece of memory that several ranks have mapped. Made by memfd, handed over as a descriptor, gone when the last
// mapping is: nothing has a name, so nothing can be left behind.
//
// All of it is reserved when it is made: too little memory is an error with the bytes needed, never a SIGBUS later. A
// memfd is sealed after that, so that nobody who has the descriptor can make it smaller under the others' mappings.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/base/fd.h"
#include "lockstep/base/types.h"

namespace lockstep::transport::shm {

// There is no shared memory to be had; the text says why. Thrown on all ranks or on none.
class Unavailable : public Error {
 public:
  Unavailable(Rank whose, const std::string& why);  // names the rank, unless `why` does
  Rank rank() const { return rank_; }               // whose attempt failed

 private:
  Rank rank_;
};

class Region {
 public:
  // `dir`: a directory on a tmpfs to use instead of memfd. Throws SystemError or Error with the bytes needed.
  static std::shared_ptr<Region> create(std::size_t bytes, const std::string& dir);
  // A region that another process made with the same arguments. What arrived is checked before it is used: it must have
  // the right size, all of it reserved, and, where it is a memfd, be sealed. Throws Error that says what is wrong.
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

// Ranks that are threads of one process must share one mapping: the thread sanitizer knows memory by its address.
// The rank that made the region lists it under a name, the others find it there; the entry lives as long as the region.
void list_region(const std::string& name, const std::shared_ptr<Region>& region);
std::shared_ptr<Region> find_region(const std::string& name);

// Over a Unix socket.
void send_descriptor(const Fd& socket, const Fd& descriptor);
Fd receive_descriptor(const Fd& socket);

// Memory that may still be reserved: what the system has free, or what is left under the cgroup's limit if that is
// less.
std::size_t available_memory();

}  // namespace lockstep::transport::shm
