// A collective as it was asked for, and the ranks that take part in it.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "lockstep/collectives/types.h"
#include "lockstep/transport/transport.h"

namespace lockstep::collectives {

// `count` is that of the whole, which is cut into a chunk for each rank:
//   all_reduce, reduce, broadcast   output is the whole, in place; input is the same
//   scatter, reduce_scatter         input is the whole, output this rank's chunk
//   gather, all_gather              input is this rank's chunk, output the whole
//   all_to_all                      both are wholes
// The whole of a scatter or gather counts on the root only.
struct Call {
  // What it is done for. Ranks that allocate compare their sizes by an all-gather, and must not meet a user's.
  enum class Purpose : std::uint8_t { own, allocate, allocate_common };

  Op op = Op::barrier;
  ReduceOp reduce = ReduceOp::sum;
  DType dtype = DType::uint8;
  Algorithm algorithm = Algorithm::automatic;
  Rank root = 0;
  Purpose purpose = Purpose::own;
  std::uint32_t step = 0;  // the step that it belongs to, modulo 2^24; 0: to none
  std::size_t count = 0;
  const std::byte* input = nullptr;
  std::byte* output = nullptr;

  std::size_t element() const { return bytes_per_element(dtype); }
  std::size_t bytes() const { return count * element(); }
};

// What ranks compare before they believe each other: sequence number, step, op, algorithm, dtype, count, reduce op,
// root, purpose, which communicator it is, and a hash of all collectives before it. It travels as a message's label, or
// in the shared header.
transport::Label fingerprint(const Call& call, std::uint64_t sequence, std::uint16_t context, std::uint16_t history);
// The history for the collective after this one.
std::uint16_t history_after(const transport::Label& fingerprint);
std::uint64_t sequence_of(const transport::Label& fingerprint);
std::uint32_t step_of(const transport::Label& fingerprint);
// "all_reduce 121 (float32, 1024 elements, sum, algorithm ring)", " of step 7" where it belongs to one, and " in
// communicator 3" unless it is the first
std::string describe(const transport::Label& fingerprint);

// Memory beside the user's buffers, kept from call to call so that its pages are touched once.
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

// The ranks of a communicator and how their messages travel. One collective runs at a time.
struct Party {
  transport::Transport* transport = nullptr;
  std::vector<Rank> world;  // each rank's number in the world
  Rank me = 0;
  Tag tag = 0;
  // Called now and then while a collective waits, with the ranks that it waits for. Throws when it must end.
  std::function<void(std::span<const Rank>)> on_delay;

  Scratch work;
  Scratch arrivals;
  std::atomic<std::uint64_t> messages{0};  // of plans, sent, ever; read by other threads
  std::atomic<std::uint64_t> bytes{0};

  int size() const { return static_cast<int>(world.size()); }
};

}  // namespace lockstep::collectives
