// Whether this process is a fork of the one that made something. A child has its parent's memory, and none of its
// threads: what belongs to a rank must not be used, or waited for, there.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>

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

// A condition variable that a forked child may destroy. To destroy one on which a thread waits would wait for that
// thread, and the parent's threads do not exist in a child: there it is given up instead.
class ForkableCondition {
 public:
  ForkableCondition() = default;
  ~ForkableCondition() {
    if (birthplace_.is_elsewhere()) static_cast<void>(condition_.release());
  }
  ForkableCondition(const ForkableCondition&) = delete;

  std::condition_variable* operator->() { return condition_.get(); }

 private:
  const Birthplace birthplace_;
  std::unique_ptr<std::condition_variable> condition_ = std::make_unique<std::condition_variable>();
};

}  // namespace lockstep
