// Ranks that call different collectives, in pairs drawn at random, for tests of what they are told.
//
//   disagree_under_test many SEED PAIRS RANKS TRANSPORT [then] [steps]
//                                             each pair in a world of threads; prints one line per rank and pair
//   disagree_under_test one SEED PAIR         one of these pairs, as a rank of a real job, and then a barrier
//   disagree_under_test steps ALGORITHM STEP ALGORITHM STEP
//                                             all-reduces that differ in the algorithm or in the step
//   disagree_under_test root OP               the last rank names another root, in the last call of all
//
// The last rank makes the second call of a pair, the others make the first. With `then`, all call barrier() afterwards:
// a rank that only sends finds out in its next call. A line is "PAIR RANK OUTCOME: text", where OUTCOME is ok,
// mismatch, died, late, usage or other; `wrong` is an ok of a rank that had to hear from one that disagreed, or an ok
// of all ranks in a world that nobody was told about when it ended.
#include <algorithm>
#include <cstdio>
#include <random>
#include <string>
#include <vector>

#include "lockstep/collectives/plan.h"
#include "lockstep/communicator.h"
#include "lockstep/error.h"

namespace {

using lockstep::Algorithm;
using lockstep::Communicator;
using lockstep::DType;
using lockstep::Op;
using lockstep::Rank;
using lockstep::ReduceOp;

constexpr std::size_t kMost = 40'000;  // elements

struct Asked {
  Op op = Op::barrier;
  DType dtype = DType::float32;
  ReduceOp reduce = ReduceOp::sum;
  Algorithm algorithm = Algorithm::automatic;
  Rank root = 0;
  std::uint32_t step = 0;
  std::size_t each = 0;  // elements of one rank's chunk; the whole has as many times the ranks

  bool reduces() const { return op == Op::all_reduce || op == Op::reduce || op == Op::reduce_scatter; }
  bool has_root() const { return op == Op::reduce || op == Op::broadcast || op == Op::scatter || op == Op::gather; }
  // What this call does not have is the same for all.
  Asked plain() const {
    Asked call = *this;
    if (!reduces()) call.reduce = ReduceOp::sum;
    if (!has_root()) call.root = 0;
    if (op == Op::barrier) call.each = 0, call.dtype = DType::float32;
    return call;
  }
  bool operator==(const Asked&) const = default;
};

struct Pair {
  Asked one, other;
};

class Draw {
 public:
  Draw(unsigned seed, int ranks, bool shared, bool steps)
      : engine_(seed), ranks_(ranks), shared_(shared), steps_(steps) {}

  Pair pair() {
    while (true) {
      Pair drawn{call(), {}};
      // Half of them differ in one thing only, which is how programs go wrong.
      drawn.other = below(2) == 0 ? call() : variant(drawn.one);
      if (!is_allowed(drawn.one) || !is_allowed(drawn.other)) continue;
      if (drawn.one.plain() != drawn.other.plain()) return drawn;
    }
  }

 private:
  // The mean of integers is wrong usage, whatever the other ranks call.
  static bool is_allowed(const Asked& call) {
    return !call.reduces() || call.reduce != ReduceOp::mean || !lockstep::is_integer(call.dtype);
  }
  std::size_t below(std::size_t n) { return engine_() % n; }
  template <typename T>
  T any(std::span<const T> all) {
    return all[below(all.size())];
  }
  std::size_t size() {
    constexpr std::size_t kSizes[] = {0, 1, 2, 17, 1000, 1001, kMost / 8};
    return kSizes[below(std::size(kSizes))];
  }
  Algorithm algorithm(Op op) {
    std::vector<Algorithm> all = lockstep::collectives::algorithms_of(op);
    std::erase(all, Algorithm::direct);
    all.push_back(Algorithm::automatic);
    if (shared_) all.push_back(Algorithm::direct);
    return all[below(all.size())];
  }
  Asked call() {
    Asked call;
    call.op = any(lockstep::all_ops());
    call.dtype = any(lockstep::all_dtypes());
    call.reduce = any(lockstep::all_reduce_ops());
    call.algorithm = algorithm(call.op);
    call.root = static_cast<Rank>(below(static_cast<std::size_t>(ranks_)));
    if (steps_ && below(2) == 0) call.step = static_cast<std::uint32_t>(below(3));
    call.each = size();
    return call;
  }
  Asked variant(Asked call) {
    switch (below(6)) {
      case 0:
        call.dtype = any(lockstep::all_dtypes());
        break;
      case 1:
        call.reduce = any(lockstep::all_reduce_ops());
        break;
      case 2:
        call.algorithm = algorithm(call.op);
        break;
      case 3:
        call.root = static_cast<Rank>(below(static_cast<std::size_t>(ranks_)));
        break;
      case 4:
        if (steps_) call.step = static_cast<std::uint32_t>(below(5));
        break;
      default:
        call.each = size();
    }
    return call;
  }

  std::mt19937 engine_;
  int ranks_;
  bool shared_;  // there is an algorithm `direct`
  bool steps_;
};

void run(Communicator& comm, const Asked& call) {
  std::vector<double> first(kMost, 1.0);
  std::vector<double> second(kMost);
  const std::size_t ranks = static_cast<std::size_t>(comm.size());
  const lockstep::Buffer whole(first.data(), call.each * ranks, call.dtype);
  const lockstep::Buffer mine(second.data(), call.each, call.dtype);
  const lockstep::CallOptions how{.algorithm = call.algorithm, .timeout = {}};
  comm.begin_step(call.step);
  switch (call.op) {
    case Op::all_reduce:
      return comm.all_reduce(whole, call.reduce, how);
    case Op::reduce:
      return comm.reduce(whole, call.reduce, call.root, how);
    case Op::broadcast:
      return comm.broadcast(whole, call.root, how);
    case Op::scatter:
      return comm.scatter(whole, mine, call.root, how);
    case Op::gather:
      return comm.gather(mine, whole, call.root, how);
    case Op::all_gather:
      return comm.all_gather(mine, whole, how);
    case Op::reduce_scatter:
      return comm.reduce_scatter(whole, mine, call.reduce, how);
    case Op::all_to_all:
      return comm.all_to_all(whole, {second.data(), call.each * ranks, call.dtype}, how);
    case Op::barrier:
      return comm.barrier(how);
  }
}

// Whether this rank's result is made of what the rank that disagrees sent.
bool must_notice(const Pair& pair, Rank me, int ranks) {
  const bool odd = me == ranks - 1;
  const Asked& call = odd ? pair.other : pair.one;
  if (call.op == Op::broadcast || call.op == Op::scatter) return me != call.root && (odd || call.root == ranks - 1);
  if (call.op == Op::reduce || call.op == Op::gather) return me == call.root;
  return true;
}

// Makes this rank's call and says how it went.
void disagree(Communicator& comm, const Pair& pair, bool then) {
  comm.barrier();
  run(comm, comm.rank() == comm.size() - 1 ? pair.other : pair.one);
  comm.begin_step(0);
  if (then) comm.barrier();
}

std::string outcome_of(Communicator& comm, const Pair& pair, bool then, std::exception_ptr& error) {
  try {
    disagree(comm, pair, then);
    return must_notice(pair, comm.rank(), comm.size()) || then ? "wrong" : "ok";
  } catch (const std::exception& caught) {
    error = std::current_exception();
    const char* kind = dynamic_cast<const lockstep::Mismatch*>(&caught) != nullptr     ? "mismatch"
                       : dynamic_cast<const lockstep::PeerDied*>(&caught) != nullptr   ? "died"
                       : dynamic_cast<const lockstep::TimedOut*>(&caught) != nullptr   ? "late"
                       : dynamic_cast<const lockstep::UsageError*>(&caught) != nullptr ? "usage"
                                                                                       : "other";
    return std::string(kind) + ": " + caught.what();
  }
}

bool has(const std::vector<std::string>& words, const char* word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

void many(const std::vector<std::string>& words) {
  const int pairs = std::stoi(words[2]);
  const int ranks = std::stoi(words[3]);
  lockstep::transport::Options how;
  how.kind = lockstep::parse_transport(words[4]);
  how.timeout = std::chrono::seconds(2);
  lockstep::comm::Options options = lockstep::comm::Options::from_environment();
  options.timeout = how.timeout;
  Draw draw(static_cast<unsigned>(std::stoul(words[1])), ranks, how.kind == lockstep::TransportKind::shm,
            has(words, "steps"));
  const bool then = has(words, "then");
  for (int number = 0; number < pairs; ++number) {
    const Pair pair = draw.pair();
    std::vector<std::string> outcomes(static_cast<std::size_t>(ranks));
    try {
      lockstep::thread_world(
          ranks,
          [&](Communicator& comm) {
            std::exception_ptr error;
            outcomes[static_cast<std::size_t>(comm.rank())] = outcome_of(comm, pair, then, error);
            if (error) std::rethrow_exception(error);
          },
          how, options);
      for (std::string& outcome : outcomes) outcome = "wrong";
    } catch (const std::exception&) {  // written down above, or said at the world's end
    }
    for (int rank = 0; rank < ranks; ++rank)
      std::printf("%d %d %s\n", number, rank, outcomes[static_cast<std::size_t>(rank)].c_str());
    std::fflush(stdout);
  }
}

// As a rank of a real job.
void one(Communicator& comm, const std::vector<std::string>& words) {
  const Rank last = comm.size() - 1;
  if (words[0] == "steps") {
    const auto call = [&](std::size_t n) {
      return Asked{.op = Op::all_reduce,
                   .algorithm = lockstep::parse_algorithm("ALGORITHM", words[n]),
                   .step = static_cast<std::uint32_t>(std::stoul(words[n + 1])),
                   .each = 100};
    };
    return disagree(comm, {call(1), call(3)}, false);
  }
  if (words[0] == "root") {
    const Op op = lockstep::parse_op("OP", words[1]);
    const bool to_root = op == Op::reduce || op == Op::gather;  // nobody takes itself for the root: all only send
    const Asked first{.op = op, .root = to_root ? last : 0, .each = 100};
    const Asked second{.op = op, .root = to_root ? 0 : last, .each = 100};
    return disagree(comm, {first, second}, false);
  }
  Draw draw(static_cast<unsigned>(std::stoul(words[1])), comm.size(), comm.transport() == "shm", false);
  Pair pair = draw.pair();
  for (int number = std::stoi(words[2]); number > 0; --number) pair = draw.pair();
  disagree(comm, pair, true);
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  if (words[0] != "many") return lockstep::rank_main([&](Communicator& comm) { one(comm, words); });
  many(words);
  return 0;
}
