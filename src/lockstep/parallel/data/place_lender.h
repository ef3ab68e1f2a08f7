// Lets autograd write a new gradient into its place in a bucket, so that nobody has to copy it there.
//
// When a parameter has no gradient, autograd takes a tensor that backward has just computed, and makes it the gradient
// without a copy. The memory of that tensor comes from libtorch's allocator. A PlaceLender answers this one
// allocation with the gradient's place, and leaves all others alone.
//
//   backward allocates   4 MB    512 B   4 MB    4 MB    512 B   4 MB         the order is the same at every step
//   of the size 4 MB     no. 0           no. 1   no. 2           no. 3
//   became               gradient of w2          gradient of w1               as the last backward has shown
//   now gets             w2's place      memory  w1's place      memory
//
// So the first backward is watched, and the following ones are served. A guess that turns out to be wrong costs time,
// but no number: the place then belongs to another tensor until this is freed, and Gradients copies the gradient when
// that has happened, or moves the bucket to other memory if that tensor outlives backward.
//
// The allocator of a process can be replaced, but not per object, so one allocator of ours stands before libtorch's own
// from the first PlaceLender on. Allocations by threads that are not between begin() and end() cost one look at a
// thread's variable more than before.
//
// Only one thread at a time may use a PlaceLender. What it has lent may be freed on any thread, also after the lender
// was destroyed, and in a forked child.
#pragma once

#include <c10/core/Allocator.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "lockstep/buffer.h"

namespace lockstep::parallel {

class PlaceLender {
 public:
  // Of so many parameters. `may_lend` is called before a place is lent, on the thread that runs backward. If it returns
  // false, the place is not lent.
  PlaceLender(std::size_t parameters, std::function<bool(std::size_t parameter)> may_lend);
  ~PlaceLender();
  PlaceLender(const PlaceLender&) = delete;
  PlaceLender& operator=(const PlaceLender&) = delete;

  // The place of a parameter, in `memory`, which is kept alive while the place is lent. The place counts as free.
  void set_place(std::size_t parameter, Bytes place, const std::shared_ptr<Bytes>& memory);

  // Must be called at the beginning of a backward, on its thread. Further calls in the same backward have no effect and
  // return false.
  bool begin();
  // Must be called at the end of a backward that did not throw.
  void end();

  // Must be called when the gradient of a parameter has come and begins at `data`. `is_new`: it had none before.
  void came(std::size_t parameter, const void* data, bool is_new);
  // True if a tensor lives in the place that was lent.
  bool is_lent(std::size_t parameter) const;
  // True if the place was lent in the backward that runs now, or ran last.
  bool was_lent_now(std::size_t parameter) const;

 private:
  friend class LendingAllocator;
  struct State;
  std::shared_ptr<State> state_;
};

// Memory from libtorch's own allocator, which is never a place.
c10::DataPtr plain_memory(std::size_t bytes);

}  // namespace lockstep::parallel
