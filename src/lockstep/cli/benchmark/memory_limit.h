// What the memory allows: an op's own reads and writes, made by min(ranks, cores) ranks at once with no synchronisation
// among them, over buffers in one shared region. Nobody can do the op faster without moving fewer bytes.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/cli/benchmark/memory_kernel.h"
#include "lockstep/collectives/types.h"
#include "lockstep/transport/shm/region.h"
#include "lockstep/transport/world.h"

namespace lockstep::cli::benchmark {

// Pieces of memory to be summed and written, as offsets from the first buffer.
struct MemoryTask {
  std::vector<std::size_t> sources;
  std::vector<std::size_t> targets;
  std::size_t bytes = 0;
};

// What the ranks of an op read and write between them, over p buffers (all_to_all: 2p) that are `stride` apart.
std::vector<MemoryTask> memory_tasks(std::optional<Op> op, int ranks, Rank root, std::size_t bytes, std::size_t stride);

class MemoryLimit {
 public:
  // Collective over the world, as everything here. `room`: bytes of a rank's buffers, as for the op itself. Where it
  // can't be had, `problem` says why and measure() does nothing.
  MemoryLimit(World& world, int cores, std::optional<Op> op, Rank root, std::size_t room);
  ~MemoryLimit();
  const std::string& problem() const { return problem_; }

  // One more try at this size, of about so many seconds; the best counts. Goes through `copies` buffers that are
  // `stride` apart, so that they are as hot or as cold as the op's own. Ranks beyond the cores sleep meanwhile.
  void measure(std::size_t bytes, std::size_t stride, std::size_t copies, double seconds);

  // On rank 0, after measure().
  struct Figures {
    double kernel_gbs = 0;  // bytes read and written, by the op's own pattern
    double copy_gbs = 0;    // by a non-temporal copy
    double seconds = 0;     // that the op's bytes take at the higher of both
  };
  std::optional<Figures> at(std::size_t bytes) const;

 private:
  struct Header;
  Header& header() const;
  void share_region(std::size_t bytes);
  void meet();  // of those who measure
  double time_of(std::span<const MemoryTask> tasks, Store store, double seconds);
  void run_share(std::span<const MemoryTask> tasks, std::size_t copy, Store store);

  World& world_;
  std::optional<Op> op_;
  Rank root_;
  int workers_;
  int buffers_;
  std::size_t copy_bytes_ = 0;  // of all ranks' buffers
  std::size_t copies_ = 1;
  std::string problem_;
  std::shared_ptr<transport::shm::Region> region_;
  unsigned meetings_ = 0;
  std::size_t next_copy_ = 0;
  int tries_ = 0;
  std::map<std::size_t, Figures> best_;
};

}  // namespace lockstep::cli::benchmark
