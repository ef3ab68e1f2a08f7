// Every rank brings some numbers, and all ranks get their mean.
//   lockstep run -n 4 -- all_reduce         LOCKSTEP_TRANSPORT=tcp lockstep run -n 3 -- all_reduce
#include <cstdio>
#include <vector>

#include "lockstep/communicator.h"
#include "lockstep/error.h"
#include "lockstep/transport.h"

// region mean
// Each rank has the gradients of its own part of the batch. Their mean is the gradient of the whole batch.
void average(lockstep::Communicator& comm, std::vector<float>& gradients) {
  comm.all_reduce(gradients, lockstep::ReduceOp::mean);
}
// endregion

// region overlap
// The same without waiting: the all-reduce runs while this thread does something else.
lockstep::Work begin_average(lockstep::Communicator& comm, std::span<float> gradients) {
  return comm.all_reduce_async(gradients, lockstep::ReduceOp::mean);
}
// endregion

int main() {
  return lockstep::rank_main([](lockstep::Communicator& comm) {
    const auto mine = static_cast<float>(comm.rank());
    const float expected = static_cast<float>(comm.size() - 1) / 2;

    std::vector<float> gradients(1000, mine);
    average(comm, gradients);

    // Memory in the arena is mapped by all ranks of the host, so nothing is copied.
    const auto shared = comm.allocate<float>(1'000'000);
    std::fill(shared->begin(), shared->end(), mine);
    lockstep::Work work = begin_average(comm, *shared);
    work.wait();

    if (gradients[999] != expected || (*shared)[999'999] != expected) throw lockstep::Error("the mean is wrong");
    if (comm.rank() == 0)
      std::printf("the mean of 0 to %d is %g, on %d ranks over %s, by %s\n", comm.size() - 1,
                  static_cast<double>(gradients[0]), comm.size(), comm.transport().c_str(),
                  name_of(comm.choice(lockstep::Op::all_reduce, 1000, lockstep::DType::float32)));
  });
}
