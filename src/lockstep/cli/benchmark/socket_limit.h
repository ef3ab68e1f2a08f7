// What sockets allow: pairs of ranks send to and receive from each other at once over a bare loopback connection.
// bench/peers/socket_p2p.cpp tries several ways to do it; this is the one that won. It bounds ops whose bytes go both
// ways.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/fd.h"
#include "lockstep/transport/world.h"

namespace lockstep::cli::benchmark {

class SocketLimit {
 public:
  // Collective over the world, as everything here. Where it can't be had, `problem` says why and measure() does
  // nothing.
  SocketLimit(World& world, int cores);
  const std::string& problem() const { return problem_; }

  // Ranks that measure at once.
  int workers() const { return workers_; }

  // One more try at this size; the best counts. Ranks beyond the cores sleep meanwhile.
  void measure(std::size_t bytes);
  // On rank 0: GB/s each way, of each pair.
  std::optional<double> at(std::size_t bytes) const;

 private:
  // Sends all of `out` and fills all of `in`.
  void move(ConstBytes out, Bytes in);
  // The median of as many as fill a while.
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

}  // namespace lockstep::cli::benchmark
