// A ring all-reduce made of nothing but send and receive.
//   lockstep run -n 4 -- ring_from_scratch
#include <cstdio>
#include <vector>

#include "lockstep/communicator.h"
#include "lockstep/error.h"

namespace {

using lockstep::Communicator;

// region ring
// The buffer is cut into p chunks. In p-1 steps, each chunk travels once round the ring and collects every rank's
// share. In p-1 more steps, the complete chunks travel round the ring again.
void ring_all_reduce(Communicator& comm, std::span<float> buffer) {
  const int p = comm.size();
  const auto chunk = [&](int number) {
    number = (number % p + p) % p;
    return buffer.subspan(lockstep::chunk_begin(buffer.size(), p, number),
                          lockstep::chunk_size(buffer.size(), p, number));
  };
  std::vector<float> arrived(lockstep::chunk_size(buffer.size(), p, 0));

  for (int step = 0; step < p - 1; ++step) {  // reduce-scatter: at the end, rank r has the complete chunk r
    const auto out = chunk(comm.rank() - step - 1);
    const auto in = chunk(comm.rank() - step - 2);
    lockstep::Work sent = comm.send_async(comm.next_rank(), out);
    comm.recv(comm.prev_rank(), std::span(arrived).first(in.size()));
    for (std::size_t i = 0; i < in.size(); ++i) in[i] += arrived[i];
    sent.wait();
  }
  for (int step = 0; step < p - 1; ++step) {  // all-gather: pass on the chunks that are complete
    lockstep::Work sent = comm.send_async(comm.next_rank(), chunk(comm.rank() - step));
    comm.recv(comm.prev_rank(), chunk(comm.rank() - step - 1));
    sent.wait();
  }
}
// endregion

}  // namespace

int main() {
  return lockstep::rank_main([](Communicator& comm) {
    std::vector<float> mine(1003);
    for (std::size_t i = 0; i < mine.size(); ++i)
      mine[i] = static_cast<float>(i % 10 + static_cast<std::size_t>(comm.rank()));
    std::vector<float> theirs(mine);
    ring_all_reduce(comm, mine);
    comm.all_reduce(theirs);  // the library's all-reduce
    if (mine != theirs) throw lockstep::Error("the two disagree");
    if (comm.rank() == 0) std::printf("a ring of %d ranks agrees with all_reduce on 1003 numbers\n", comm.size());
  });
}
