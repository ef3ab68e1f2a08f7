// Finds out whether this process was forked from the process that made an object. A forked child has a copy of its
// parent's memory, but none of its threads. So the child must neither use what belongs to a rank nor wait for it.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>

namespace lockstep {

// The number of forks between the process that first called this function and the current process.
std::uint64_t fork_count();

// Remembers in which process it was made.
class Birthplace {
 public:
  Birthplace() : forks_(fork_count()) {}
  bool is_elsewhere() const { return fork_count() != forks_; }

 private:
  std::uint64_t forks_;
};

// A condition variable that a forked child may destroy. Destroying a condition variable waits for the threads that wait
// on it, and in a child the parent's threads do not exist. So a child leaks it instead of destroying it.
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
