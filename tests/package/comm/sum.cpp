// Adds up the ranks' numbers. Uses lockstep::comm only.
#include <lockstep/communicator.h>

#include <cstdio>
#include <vector>

int main() {
  return lockstep::rank_main([](lockstep::Communicator& comm) {
    std::vector<float> numbers{static_cast<float>(comm.rank() + 1), 10.0F};
    comm.all_reduce(numbers);
    std::printf("%g %g\n", numbers[0], numbers[1]);
  });
}
