// The limit that sockets set: pairs of ranks send to and receive from each other at once over a bare loopback
// connection. bench/peers/socket_p2p.cpp tries several ways to do that; this is the fastest one. It is a limit for ops
// whose bytes go both ways.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/fd.h"
#include "lockstep/world.h"

namespace lockstep::measure {

class SocketLimit {
 public:
  // Collective over the world, like measure(). If there is no limit to measure, problem() says why and measure() does
  // nothing.
  SocketLimit(World& world, int cores);
  const std::string& problem() const { return problem_; }

  // The number of ranks that measure at once.
  int workers() const { return workers_; }

  // Measures once more at this size; the best result counts. Ranks beyond the number of cores sleep meanwhile.
  void measure(std::size_t bytes);
  // On rank 0: GB/s in each direction, of each pair.
  std::optional<double> at(std::size_t bytes) const;

 private:
  // Sends all of `out` and fills all of `in`.
  void move(ConstBytes out, Bytes in);
  // Seconds for `sweeps` passes over the buffers, which move `turn` bytes each way at a time: the median of as many
  // tries as fill kTryTime.
  double time_of(ConstBytes out, Bytes in, std::size_t turn, int sweeps);

  World& world_;
  int workers_;
  int spins_;
  std::string problem_;
  Fd connection_;  // to the other rank of the pair
  std::vector<std::byte> memory_;
  int tries_ = 0;
  std::map<std::size_t, double> best_;
};

}  // namespace lockstep::measure
