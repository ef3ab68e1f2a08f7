// Every rank says who it is. Start it with any launcher:
//   lockstep run -n 4 -- hello_ranks        mpirun -n 4 hello_ranks
//   for r in 0 1 2 3; do RANK=$r WORLD_SIZE=4 ./hello_ranks & done; wait
#include <unistd.h>

#include <cstdio>

#include "lockstep/world.h"

// region main
int main() {
  return lockstep::rank_main([](lockstep::World& world) {
    std::printf("hello from rank %d of %d, pid %d, %d ranks on this host\n", world.rank(), world.size(), ::getpid(),
                world.ranks_on_this_host());
  });
}
// endregion
