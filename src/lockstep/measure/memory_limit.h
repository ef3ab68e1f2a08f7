// The limit that the memory sets: an op's own reads and writes, made by min(ranks, cores) ranks at once without any
// synchronisation, over buffers in one shared region. The op can't be done faster without moving fewer bytes.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/buffer.h"
#include "lockstep/measure/memory_kernel.h"
#include "lockstep/transport/shm/region.h"
#include "lockstep/world.h"

namespace lockstep::measure {

// Pieces of memory to be summed and written, as offsets from the first buffer.
struct MemoryTask {
  std::vector<std::size_t> sources;
  std::vector<std::size_t> targets;
  std::size_t bytes = 0;
};

// What the ranks of an op read and write together, over p buffers (2p for all_to_all) that are `stride` bytes apart.
std::vector<MemoryTask> memory_tasks(std::optional<Op> op, int ranks, Rank root, std::size_t bytes, std::size_t stride);

class MemoryLimit {
 public:
  // Collective over the world, like measure(). `room` is the number of bytes of a rank's buffers, as for the op itself.
  // If there is no limit or it can't be measured, problem() says why and measure() does nothing.
  MemoryLimit(World& world, int cores, std::optional<Op> op, Rank root, std::size_t room);
  ~MemoryLimit();
  const std::string& problem() const { return problem_; }

  // Measures once more at this size, for about `seconds` seconds; the best result counts. Goes through `copies` buffers
  // that are `stride` bytes apart, so that they are as hot or as cold as the op's own. Ranks beyond the number of cores
  // sleep meanwhile.
  void measure(std::size_t bytes, std::size_t stride, std::size_t copies, double seconds);

  // The results, on rank 0 after measure().
  struct Figures {
    double kernel_gbs = 0;  // GB/s read and written by the op's own pattern
    double copy_gbs = 0;    // GB/s read and written by a non-temporal copy
    double seconds = 0;     // time that the op's bytes take at the higher of both rates
  };
  std::optional<Figures> at(std::size_t bytes) const;

 private:
  struct Header;
  Header& header() const;
  void share_region(std::size_t bytes);
  void meet();  // waits for all ranks that measure
  double time_of(std::span<const MemoryTask> tasks, Store store, double seconds);
  void run_share(std::span<const MemoryTask> tasks, std::size_t copy, Store store);

  World& world_;
  std::optional<Op> op_;
  Rank root_;
  int workers_;
  int buffers_;
  std::size_t copy_bytes_ = 0;  // bytes of one copy of all ranks' buffers
  std::size_t copies_ = 1;
  std::string problem_;
  std::shared_ptr<transport::shm::Region> region_;
  unsigned meetings_ = 0;
  std::size_t next_copy_ = 0;
  int tries_ = 0;
  std::map<std::size_t, Figures> best_;
};

}  // namespace lockstep::measure
