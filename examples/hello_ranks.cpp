// Every rank says who it is. Start it with any launcher:
//   lockstep run -n 4 -- hello_ranks        mpirun -n 4 hello_ranks
//   for r in 0 1 2 3; do RANK=$r WORLD_SIZE=4 ./hello_ranks & done; wait
#include <unistd.h>

#include <cstdio>

#include "lockstep/transport/world.h"

// region main
int main() {
  return lockstep::rank_main([](lockstep::World& world) {
    const auto& meeting = world.meeting();
    std::printf("hello from rank %d of %d, pid %d, %zu ranks on this host\n", world.rank(), world.size(), ::getpid(),
                meeting.ranks_on_my_host().size());
  });
}
// endregion
