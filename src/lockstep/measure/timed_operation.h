// One op of one size with its buffers. It is called again and again on zeros, which stay zeros, or once on exact values
// to check its result.
#pragma once

#include <cstddef>

#include "lockstep/communicator.h"
#include "lockstep/measure/bench_config.h"

namespace lockstep::measure {

// The memory for all operations of a run, which has the same size on every rank: `copies` buffers, `stride` bytes
// apart. all_to_all, which does not work in place, has its output in the second half.
struct Memory {
  Bytes bytes;
  std::size_t stride = 0;
  std::size_t copies = 1;
};

// The number of elements in `bytes` bytes. For ops in which all ranks have equal shares, it is a multiple of the number
// of ranks, with at least one element per rank.
std::size_t count_for(const BenchConfig& config, int ranks, std::size_t bytes);

class TimedOperation {
 public:
  TimedOperation(Communicator& comm, const BenchConfig& config, Algorithm algorithm, std::size_t bytes,
                 const Memory& memory);

  std::size_t count() const { return count_; }
  std::size_t bytes() const { return count_ * element_; }
  // How many timed operations one call contains: a call of p2p is a message there and one back.
  int parts() const { return config_.op ? 1 : 2; }

  // Collective. Runs the op on the next of the copies.
  void call();
  // Collective. Runs the op once, and returns the number of wrong elements on this rank. Leaves zeros.
  std::size_t wrong();

 private:
  void run(std::byte* data);
  void there_and_back(Buffer buffer);
  Buffer chunk_of(Buffer whole, Rank rank) const;
  std::size_t wrong_after(const Buffer& whole, const Buffer& output) const;

  Communicator& comm_;
  const BenchConfig& config_;
  CallOptions call_;
  Memory memory_;
  std::size_t element_;
  std::size_t count_;
  std::size_t next_ = 0;
};

}  // namespace lockstep::measure
