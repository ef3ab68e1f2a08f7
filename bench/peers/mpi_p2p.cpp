// Point-to-point messages over MPI, as its users write them: blocking calls on MPI_COMM_WORLD, no tuning in the code.
//
//   mpirun -n N mpi_p2p TEST BYTES...
//     latency, bandwidth   a payload goes to the other rank and back; one-way time = round trip / 2
//     exchange             both ranks send and receive at once
//     ring                 a token passes every rank; the time of one hop = lap / N
//
// Rank 0 prints one JSON line per size. A wrong payload aborts all ranks.
#include <mpi.h>

#include <climits>
#include <cstdlib>
#include <vector>

#include "../p2p_measure.h"

namespace {

using bench::Bytes;
using bench::Payload;

struct World {
  int rank = 0, size = 0;
};

constexpr int kTag = 0;

std::uint64_t from_rank_0(std::uint64_t value) {
  MPI_Bcast(&value, 1, MPI_UINT64_T, 0, MPI_COMM_WORLD);
  return value;
}

double hop(World world, Bytes bytes) {
  std::vector<std::byte> token(bytes);
  const int count = static_cast<int>(bytes), next = (world.rank + 1) % world.size;
  const int previous = (world.rank + world.size - 1) % world.size;
  auto send = [&](Payload p) { MPI_Send(p.data(), count, MPI_BYTE, next, kTag, MPI_COMM_WORLD); };
  auto receive = [&](Payload p) {
    MPI_Recv(p.data(), count, MPI_BYTE, previous, kTag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  };
  return bench::seconds_per_hop(world.rank, world.size, token, send, receive, from_rank_0);
}

double exchange(World world, Bytes bytes) {
  std::vector<std::byte> out(bytes), in(bytes);
  const int count = static_cast<int>(bytes), peer = 1 - world.rank;
  auto both = [&](Payload o, Payload i) {
    MPI_Sendrecv(o.data(), count, MPI_BYTE, peer, kTag, i.data(), count, MPI_BYTE, peer, kTag, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
  };
  return bench::seconds_per_exchange(world.rank, out, in, both, from_rank_0);
}

void run(World world, std::span<char*> args) {
  if (args.size() < 2) throw std::invalid_argument("usage: mpi_p2p latency|bandwidth|exchange|ring BYTES...");
  const std::string test = args[0];
  const bool pair = test == "latency" || test == "bandwidth" || test == "exchange";
  if (!pair && test != "ring") throw std::invalid_argument("unknown test '" + test + "'");
  if (world.size < 2 || (pair && world.size != 2)) {
    throw std::invalid_argument("test '" + test + "' does not run on " + std::to_string(world.size) +
                                " ranks: start it with mpirun -n " + (pair ? "2" : "N, N >= 2"));
  }
  for (const char* size : args.subspan(1)) {
    const Bytes bytes = bench::parse_bytes(size);
    if (bytes > INT_MAX) throw std::invalid_argument("MPI counts bytes with an int; " + std::string(size) + " is more");
    const double seconds = test == "exchange" ? exchange(world, bytes) : hop(world, bytes);
    if (world.rank == 0) bench::print_result("mpi", test, world.size, bytes, seconds);
  }
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  World world;
  MPI_Comm_rank(MPI_COMM_WORLD, &world.rank);
  MPI_Comm_size(MPI_COMM_WORLD, &world.size);
  try {
    run(world, std::span(argv + 1, argv + argc));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "mpi_p2p: %s\n", error.what());
    MPI_Abort(MPI_COMM_WORLD, EXIT_FAILURE);
  }
  MPI_Finalize();
}
