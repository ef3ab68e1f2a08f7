// Collectives over MPI, as its users write them: in place on MPI_COMM_WORLD, float32, sum, one hot buffer.
//
//   mpirun -n N mpi_collectives OP BYTES...
//     OP is all_reduce, reduce_scatter, broadcast, all_gather, gather or scatter
//
// BYTES is the size of the whole buffer, as in `lockstep bench`. For gather, all_gather, scatter and reduce_scatter,
// this is the buffer of all ranks together. A figure is the time of a tight loop on the slowest rank, divided by the
// number of calls. Rank 0 prints one JSON line per size. A wrong result aborts all ranks.
#include <mpi.h>

#include <algorithm>
#include <climits>
#include <cstdlib>
#include <vector>

#include "../p2p_measure.h"

namespace {

using bench::Bytes;

constexpr int kRoot = 0;

struct World {
  int rank = 0, size = 0;
};

std::uint64_t from_rank_0(std::uint64_t value) {
  MPI_Bcast(&value, 1, MPI_UINT64_T, kRoot, MPI_COMM_WORLD);
  return value;
}

// One operation on a buffer of `share_` elements per rank: how it is called, and which elements it leaves where.
class Collective {
 public:
  Collective(World world, const std::string& op, Bytes bytes)
      : world_(world),
        op_(op),
        share_(static_cast<int>(bytes / sizeof(float) / world.size)),
        counts_(world.size, share_),
        buffer_(bytes / sizeof(float)) {
    counts_.back() += static_cast<int>(buffer_.size()) - share_ * world.size;
  }

  void call() {
    float* whole = buffer_.data();
    float* mine = whole + static_cast<std::size_t>(world_.rank) * share_;
    const int count = static_cast<int>(buffer_.size());
    const bool is_root = world_.rank == kRoot;
    if (op_ == "all_reduce") {
      MPI_Allreduce(MPI_IN_PLACE, whole, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    } else if (op_ == "reduce_scatter") {
      // Never slower than MPI_Reduce_scatter_block, and in Open MPI it takes a third of the time.
      MPI_Reduce_scatter(MPI_IN_PLACE, whole, counts_.data(), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    } else if (op_ == "broadcast") {
      MPI_Bcast(whole, count, MPI_FLOAT, kRoot, MPI_COMM_WORLD);
    } else if (op_ == "all_gather") {
      MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, whole, share_, MPI_FLOAT, MPI_COMM_WORLD);
    } else if (op_ == "gather") {
      MPI_Gather(is_root ? MPI_IN_PLACE : mine, share_, MPI_FLOAT, whole, share_, MPI_FLOAT, kRoot, MPI_COMM_WORLD);
    } else {
      MPI_Scatter(whole, share_, MPI_FLOAT, is_root ? MPI_IN_PLACE : mine, share_, MPI_FLOAT, kRoot, MPI_COMM_WORLD);
    }
  }

  // Makes one call on numbers that show their rank and place, and throws if the result is wrong. Leaves zeros, which
  // stay zeros in all operations.
  void check() {
    for (std::size_t i = 0; i < buffer_.size(); ++i) buffer_[i] = value(world_.rank, i);
    call();
    const std::size_t mine = static_cast<std::size_t>(world_.rank) * share_;
    const std::size_t end = static_cast<std::size_t>(share_) * world_.size;
    if (op_ == "all_reduce") {
      for (std::size_t i = 0; i < buffer_.size(); ++i) expect(i, sum(i));
    } else if (op_ == "reduce_scatter") {
      for (int i = 0; i < share_; ++i) expect(i, sum(mine + i));
    } else if (op_ == "broadcast") {
      for (std::size_t i = 0; i < buffer_.size(); ++i) expect(i, value(kRoot, i));
    } else if (op_ == "all_gather" || (op_ == "gather" && world_.rank == kRoot)) {
      for (std::size_t i = 0; i < end; ++i) expect(i, value(static_cast<int>(i / share_), i));
    } else if (op_ == "scatter") {
      for (int i = 0; i < share_; ++i) expect(mine + i, value(kRoot, mine + i));
    }
    std::fill(buffer_.begin(), buffer_.end(), 0.0F);
  }

 private:
  static float value(int rank, std::size_t i) { return static_cast<float>((rank + 1) * (i % 1009)); }
  float sum(std::size_t i) const {
    float total = 0;
    for (int rank = 0; rank < world_.size; ++rank) total += value(rank, i);
    return total;
  }
  void expect(std::size_t i, float want) const {
    if (buffer_[i] == want) return;
    throw std::runtime_error(op_ + " of " + std::to_string(buffer_.size()) + " elements on rank " +
                             std::to_string(world_.rank) + ": element " + std::to_string(i) + " is " +
                             std::to_string(buffer_[i]) + ", expected " + std::to_string(want));
  }

  World world_;
  std::string op_;
  int share_;
  std::vector<int> counts_;  // for reduce_scatter; the last rank also has the remainder
  std::vector<float> buffer_;
};

// The time of the slowest rank, because a root may be ahead of the others.
double seconds_per_call(World world, const std::string& op, Bytes bytes) {
  Collective collective(world, op, bytes);
  collective.check();
  auto calls = [&](std::uint64_t n) {
    MPI_Barrier(MPI_COMM_WORLD);
    for (std::uint64_t i = 0; i < n; ++i) collective.call();
  };
  double mine = bench::seconds_per_iteration(calls, from_rank_0);
  double slowest = 0;
  MPI_Reduce(&mine, &slowest, 1, MPI_DOUBLE, MPI_MAX, kRoot, MPI_COMM_WORLD);
  return slowest;
}

void run(World world, std::span<char*> args) {
  if (args.size() < 2) throw std::invalid_argument("usage: mpi_collectives OP BYTES...");
  const std::string op = args[0];
  const std::vector<std::string> known{"all_reduce", "reduce_scatter", "broadcast", "all_gather", "gather", "scatter"};
  if (std::find(known.begin(), known.end(), op) == known.end()) throw std::invalid_argument("unknown op '" + op + "'");
  for (const char* size : args.subspan(1)) {
    const Bytes bytes = bench::parse_bytes(size);
    const bool in_shares = op != "all_reduce" && op != "broadcast";
    if (bytes / sizeof(float) > INT_MAX || (in_shares && bytes / sizeof(float) < static_cast<Bytes>(world.size)))
      throw std::invalid_argument("size " + std::string(size) + " is too large, or has no element for each rank");
    const double seconds = seconds_per_call(world, op, bytes);
    if (world.rank == kRoot)
      std::printf("{\"peer\":\"mpi\",\"op\":\"%s\",\"ranks\":%d,\"bytes\":%zu,\"us\":%.4f}\n", op.c_str(), world.size,
                  bytes, seconds * 1e6);
    std::fflush(stdout);
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
    std::fprintf(stderr, "mpi_collectives: %s\n", error.what());
    MPI_Abort(MPI_COMM_WORLD, EXIT_FAILURE);
  }
  MPI_Finalize();
}
