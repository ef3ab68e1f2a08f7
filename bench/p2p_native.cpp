// Point-to-point messages over Lockstep's own transports, measured like the peers.
//
//   lockstep run -n N -- p2p_native --transport shm|tcp TEST BYTES...      tests as in peers/mpi_p2p.cpp
//
// Rank 0 prints one JSON line per size. A wrong payload ends all ranks.
#include <string>
#include <vector>

#include "lockstep/error.h"
#include "lockstep/transport.h"
#include "lockstep/world.h"
#include "p2p_measure.h"

namespace {

using bench::Payload;

std::uint64_t from_rank_0(lockstep::World& world, std::uint64_t value) {
  auto& transport = world.transport();
  for (lockstep::Rank peer = 1; world.rank() == 0 && peer < world.size(); ++peer)
    transport.send(peer, 1, lockstep::bytes_of(value));
  if (world.rank() != 0) transport.recv(0, 1, lockstep::writable_bytes_of(value));
  return value;
}

double measure(lockstep::World& world, const std::string& test, std::size_t bytes) {
  auto& transport = world.transport();
  const auto agree = [&](std::uint64_t value) { return from_rank_0(world, value); };
  std::vector<std::byte> out(bytes);
  if (test == "exchange") {
    std::vector<std::byte> in(bytes);
    const auto both = [&](Payload outgoing, Payload incoming) {
      auto sending = transport.send_async(world.next_rank(), 0, outgoing);
      transport.recv(world.prev_rank(), 0, incoming);
      sending.wait();
    };
    return bench::seconds_per_exchange(world.rank(), out, in, both, agree);
  }
  const auto send = [&](Payload token) { transport.send(world.next_rank(), 0, token); };
  const auto receive = [&](Payload token) { transport.recv(world.prev_rank(), 0, token); };
  return bench::seconds_per_hop(world.rank(), world.size(), out, send, receive, agree);
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::string> args(argv + 1, argv + argc);
  if (args.size() >= 2 && args[0] == "--transport") {
    setenv("LOCKSTEP_TRANSPORT", args[1].c_str(), 1);
    args.erase(args.begin(), args.begin() + 2);
  }
  return lockstep::rank_main([&](lockstep::World& world) {
    if (args.size() < 2) throw lockstep::UsageError("p2p_native wants TEST BYTES...", "p2p_native latency 8");
    for (std::size_t i = 1; i < args.size(); ++i) {
      const std::size_t bytes = bench::parse_bytes(args[i]);
      const double seconds = measure(world, args[0], bytes);
      if (world.rank() == 0)
        bench::print_result("lockstep-" + world.transport().name(), args[0], world.size(), bytes, seconds);
    }
  });
}
