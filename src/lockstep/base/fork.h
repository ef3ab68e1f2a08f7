// Whether this process is a fork of the one that made something. A child has its parent's memory, and none of its
// threads: what belongs to a rank must not be used, or waited for, there.
#pragma once

#include <cstdint>

namespace lockstep {

// The number of forks between the first process and this one, as seen by this library.
std::uint64_t fork_count();

class Birthplace {
 public:
  Birthplace() : forks_(fork_count()) {}
  bool is_elsewhere() const { return fork_count() != forks_; }

 private:
  std::uint64_t forks_;
};

}  // namespace lockstep
