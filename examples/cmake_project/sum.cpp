// Every rank brings its number, and all ranks get the sum.
#include <lockstep/comm.h>

#include <cstdio>
#include <vector>

int main() {
  return lockstep::rank_main([](lockstep::Communicator& comm) {
    std::vector<double> numbers{static_cast<double>(comm.rank())};
    comm.all_reduce(numbers);
    std::printf("the ranks add up to %g\n", numbers[0]);
  });
}
