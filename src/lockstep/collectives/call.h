// A collective as the caller asked for it, and the ranks that take part in it.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "lockstep/buffer.h"
#include "lockstep/transport.h"

namespace lockstep::collectives {

// `count` is the number of elements of the whole buffer, which is divided into one chunk per rank:
//   all_reduce, reduce, broadcast   output is the whole, in place; input is the same
//   scatter, reduce_scatter         input is the whole, output this rank's chunk
//   gather, all_gather              input is this rank's chunk, output the whole
//   all_to_all                      both are wholes
// In a scatter or gather only the root has the whole.
struct Call {
  // What the call is made for. Ranks that allocate compare their sizes by an all-gather; the purpose keeps it from
  // being mistaken for an all-gather of the user.
  enum class Purpose : std::uint8_t { own, allocate, allocate_common };

  Op op = Op::barrier;
  ReduceOp reduce = ReduceOp::sum;
  DType dtype = DType::uint8;
  Algorithm algorithm = Algorithm::automatic;
  Rank root = 0;
  Purpose purpose = Purpose::own;
  std::uint32_t step = 0;  // training step, modulo 2^24; 0 if the call belongs to none
  std::size_t count = 0;
  const std::byte* input = nullptr;
  std::byte* output = nullptr;

  std::size_t element() const { return bytes_per_element(dtype); }
  std::size_t bytes() const { return count * element(); }
};

// Memory besides the user's buffers. It is kept from call to call, so that its pages are touched for the first time
// only once. A call of get() that needs more memory frees the memory of the calls before it.
class Scratch {
 public:
  std::byte* get(std::size_t bytes);

 private:
  struct Free {
    void operator()(std::byte* memory) const;
  };
  std::unique_ptr<std::byte, Free> memory_;
  std::size_t size_ = 0;
};

// The ranks of a communicator, and how their messages travel. Only one collective runs at a time.
struct Group {
  transport::Transport* transport = nullptr;
  std::vector<Rank> world;  // each rank's number in the world
  Rank me = 0;
  Tag tag = 0;
  // Called again and again while a collective waits, with the ranks that it waits for. Throws if the collective must
  // end.
  std::function<void(std::span<const Rank>)> on_delay;

  Scratch work;
  Scratch arrivals;
  std::atomic<std::uint64_t> messages{0};  // sent by plans since the start; other threads read it
  std::atomic<std::uint64_t> bytes{0};

  int size() const { return static_cast<int>(world.size()); }
};

}  // namespace lockstep::collectives
