#include "lockstep/measure/timed_operation.h"

#include <algorithm>
#include <cstring>

#include "lockstep/measure/exact_values.h"

namespace lockstep::measure {

std::size_t count_for(const BenchConfig& config, int ranks, std::size_t bytes) {
  if (config.op == Op::barrier) return 0;
  const std::size_t count = bytes / bytes_per_element(config.dtype);
  const bool equal_shares = config.op == Op::scatter || config.op == Op::gather || config.op == Op::all_to_all;
  if (!equal_shares || bytes == 0) return std::max<std::size_t>(count, bytes > 0 ? 1 : 0);
  const auto p = static_cast<std::size_t>(ranks);
  return std::max(count / p, std::size_t{1}) * p;
}

TimedOperation::TimedOperation(Communicator& comm, const BenchConfig& config, Algorithm algorithm, std::size_t bytes,
                               const Memory& memory)
    : comm_(comm),
      config_(config),
      call_{.algorithm = algorithm, .timeout = {}},
      memory_(memory),
      element_(bytes_per_element(config.dtype)),
      count_(count_for(config, comm.size(), bytes)) {}

void TimedOperation::call() {
  std::byte* data = memory_.bytes.data() + next_ * memory_.stride;
  next_ = next_ + 1 == memory_.copies ? 0 : next_ + 1;
  run(data);
}

Buffer TimedOperation::chunk_of(Buffer whole, Rank rank) const {
  const std::size_t begin = chunk_begin(whole.count, comm_.size(), rank);
  return {whole.data + begin * element_, chunk_size(whole.count, comm_.size(), rank), whole.dtype};
}

void TimedOperation::run(std::byte* data) {
  const Buffer whole(data, count_, config_.dtype);
  if (!config_.op) return there_and_back(whole);
  switch (*config_.op) {
    case Op::all_reduce:
      return comm_.all_reduce(whole, config_.reduce_op, call_);
    case Op::reduce:
      return comm_.reduce(whole, config_.reduce_op, config_.root, call_);
    case Op::broadcast:
      return comm_.broadcast(whole, config_.root, call_);
    case Op::scatter:
      return comm_.scatter(whole, chunk_of(whole, comm_.rank()), config_.root, call_);
    case Op::gather:
      return comm_.gather(chunk_of(whole, comm_.rank()), whole, config_.root, call_);
    case Op::all_gather:
      return comm_.all_gather(chunk_of(whole, comm_.rank()), whole, call_);
    case Op::reduce_scatter:
      return comm_.reduce_scatter(whole, chunk_of(whole, comm_.rank()), config_.reduce_op, call_);
    case Op::all_to_all:
      return comm_.all_to_all(whole, Buffer(data + memory_.bytes.size() / 2, count_, config_.dtype), call_);
    case Op::barrier:
      return comm_.barrier(call_);
  }
}

// Pairs of neighbours exchange messages. If the number of ranks is odd, the last one has no partner.
void TimedOperation::there_and_back(Buffer buffer) {
  const Rank peer = comm_.rank() ^ 1;
  if (peer >= comm_.size()) return;
  if (comm_.rank() < peer) comm_.send(peer, buffer);
  comm_.recv(peer, buffer);
  if (comm_.rank() > peer) comm_.send(peer, buffer);
}

std::size_t TimedOperation::wrong() {
  const ExactValues values(config_.reduce_op, config_.dtype, comm_.size());
  const Rank me = comm_.rank();
  const Buffer whole(memory_.bytes.data(), count_, config_.dtype);
  const Buffer output(whole.data + memory_.bytes.size() / 2, count_, config_.dtype);
  // Each rank fills its whole buffer with numbers of its own, so that what is not moved stays wrong.
  values.fill(whole, me);
  if (config_.op == Op::scatter && me == config_.root)
    for (Rank rank = 0; rank < comm_.size(); ++rank) values.fill(chunk_of(whole, rank), rank);
  if (config_.op == Op::gather || config_.op == Op::all_gather) values.fill(chunk_of(whole, me), me);
  run(whole.data);
  const std::size_t wrong = wrong_after(whole, output);
  std::memset(whole.data, 0, whole.bytes());
  if (config_.op == Op::all_to_all) std::memset(output.data, 0, output.bytes());
  return wrong;
}

std::size_t TimedOperation::wrong_after(const Buffer& whole, const Buffer& output) const {
  const ExactValues values(config_.reduce_op, config_.dtype, comm_.size());
  const Rank me = comm_.rank();
  const auto of_all_ranks = [&](Buffer buffer, std::size_t first) {
    std::size_t wrong = 0;
    for (Rank rank = 0; rank < comm_.size(); ++rank) wrong += values.wrong(chunk_of(buffer, rank), rank, first);
    return wrong;
  };
  if (!config_.op) {  // the lower rank of a pair sent first, and got back what it sent
    const Rank sender = (me ^ 1) < comm_.size() ? std::min(me, me ^ 1) : me;
    return values.wrong(whole, sender);
  }
  switch (*config_.op) {
    case Op::all_reduce:
      return values.wrong_reduced(whole);
    case Op::reduce:
      return me == config_.root ? values.wrong_reduced(whole) : values.wrong(whole, me);
    case Op::broadcast:
      return values.wrong(whole, config_.root);
    case Op::scatter:
      return values.wrong(chunk_of(whole, me), me);
    case Op::gather:
      return me == config_.root ? of_all_ranks(whole, 0) : 0;
    case Op::all_gather:
      return of_all_ranks(whole, 0);
    case Op::reduce_scatter:
      return values.wrong_reduced(chunk_of(whole, me), chunk_begin(count_, comm_.size(), me));
    case Op::all_to_all:  // chunk r is what rank r had as the chunk for this rank
      return of_all_ranks(output, chunk_begin(count_, comm_.size(), me));
    case Op::barrier:
      return 0;
  }
  return 0;
}

}  // namespace lockstep::measure
