// A rank that runs collectives as it is told, for tests that harm it.
//
//   collective_under_test loop ELEMENTS [LAPS]     all-reduces; rank 0 prints "lap N" now and then, all a digest at the
//                                                  end
//   collective_under_test pause ELEMENTS LAPS      the same; rank 1 stops itself half way, by SIGSTOP
//   collective_under_test FAULT RANK LAPS          all-reduces, but after LAPS that rank has the fault:
//                                                  segv, throw, exit0, return, hang
//   collective_under_test disagree WHAT            the last rank calls something else: op, count, dtype, reduce, root
//   collective_under_test matrix                   a sample of the matrix of tests/comm; prints "wrong 0 of N"
//   collective_under_test huge                     buffers of more than 2 GiB
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "../comm/cases.h"
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

void say(const std::string& text) {
  std::printf("%s\n", text.c_str());
  std::fflush(stdout);
}

std::uint64_t digest_of(std::span<const float> values, std::uint64_t hash) {
  for (const std::byte byte : std::as_bytes(values))
    hash = (hash ^ std::to_integer<std::uint64_t>(byte)) * 1099511628211ULL;
  return hash;
}

void loop(Communicator& comm, std::size_t elements, long laps, bool quiet = false, long pause_at = -1) {
  std::vector<float> values(elements);
  std::jthread stopper;
  std::uint64_t hash = 14695981039346656037ULL;
  for (long lap = 0; lap < laps; ++lap) {
    for (std::size_t i = 0; i < elements; ++i)
      values[i] = 1.0F / static_cast<float>(i % 1000 + static_cast<std::size_t>(lap % 7) * 3 +
                                            static_cast<std::size_t>(comm.rank()) + 1);
    // From another thread, so that it hits this one wherever it is by then.
    if (lap == pause_at) stopper = std::jthread([] { ::kill(::getpid(), SIGSTOP); });
    comm.all_reduce(values, ReduceOp::mean);
    if (lap % 50 == 0) hash = digest_of(values, hash);
    if (comm.rank() == 0 && !quiet && lap % (elements > 10'000 ? 10 : 200) == 5) say("lap " + std::to_string(lap));
  }
  char text[40];
  std::snprintf(text, sizeof text, "digest %016lx", hash);
  if (!quiet) say(text);
}

void commit_fault(const std::string& fault) {
  if (fault == "segv") ::raise(SIGSEGV);
  if (fault == "throw") throw std::runtime_error("the loss is not a number");
  if (fault == "exit0") std::_Exit(0);
  if (fault == "hang") {
    say("hanging");
    while (true) std::this_thread::sleep_for(std::chrono::seconds(1));
  }
}

void disagree(Communicator& comm, const std::string& what) {
  const bool odd = comm.rank() == comm.size() - 1;
  std::vector<float> x(1001);
  std::vector<std::int32_t> ints(1000);
  comm.barrier();
  if (odd && what == "op") return comm.barrier();
  if (odd && what == "dtype") return comm.all_reduce(ints);
  if (what == "root") {
    comm.broadcast(x, odd ? comm.rank() : 0);
    return comm.barrier();  // who only sends finds out in its next call
  }
  comm.all_reduce(std::span(x).first(odd && what == "count" ? 1001 : 1000),
                  odd && what == "reduce" ? ReduceOp::max : ReduceOp::sum);
}

void matrix(Communicator& comm) {
  const auto n = static_cast<std::size_t>(comm.size());
  const std::size_t most = (std::size_t{1} << 20) / 4 + 1;
  std::size_t wrong = 0;
  std::size_t count = 0;
  for (const bool arena : {false, true}) {
    lockstep::cases::Memory a(comm, most * 4 + 64, arena);
    lockstep::cases::Memory b(comm, most * 4 + 64, arena);
    for (const Op op : lockstep::all_ops()) {
      std::vector<Algorithm> algorithms = lockstep::collectives::algorithms_of(op);
      algorithms.push_back(Algorithm::automatic);
      for (const Algorithm algorithm : algorithms)
        for (const DType dtype : {DType::float32, DType::bfloat16, DType::int64})
          for (const std::size_t size : {std::size_t{0}, n + 1, std::size_t{4097}, most}) {
            if (size == most && dtype != DType::float32) continue;
            const bool whole = op == Op::scatter || op == Op::gather || op == Op::all_to_all;
            const std::size_t fits = most * 4 / n / bytes_per_element(dtype);
            wrong += lockstep::cases::wrong(comm,
                                            {op, dtype, ReduceOp::sum, whole ? std::min(size, fits) : size,
                                             static_cast<Rank>(count % n), algorithm, count % 2 == 1},
                                            a.data(), b.data());
            ++count;
          }
    }
  }
  say("wrong " + std::to_string(wrong) + " of " + std::to_string(count));
}

// More elements than an int counts, and more bytes than 2 GiB, by every kind of path.
void huge(Communicator& comm) {
  const std::size_t count = (std::size_t{1} << 31) + 5;
  std::size_t wrong = 0;
  const auto round = [&](std::span<std::uint8_t> values, Algorithm algorithm) {
    for (std::size_t i = 0; i < count; ++i)
      values[i] = static_cast<std::uint8_t>(i * 7 + static_cast<std::size_t>(comm.rank()));
    comm.all_reduce(values, ReduceOp::sum, {.algorithm = algorithm, .timeout = {}});
    const auto p = static_cast<std::size_t>(comm.size());
    for (std::size_t i = 0; i < count; ++i)
      if (values[i] != static_cast<std::uint8_t>(i * 7 * p + p * (p - 1) / 2)) ++wrong;
    if (comm.rank() == 0) say(std::string("done ") + name_of(algorithm));
  };
  {
    std::vector<std::uint8_t> own(count);
    round(own, Algorithm::automatic);
    round(own, Algorithm::ring);
  }
  const auto shared = comm.allocate<std::uint8_t>(count);
  round(*shared, Algorithm::automatic);
  say("wrong " + std::to_string(wrong));
}

void obey(Communicator& comm, const std::vector<std::string>& words) {
  const std::string& mode = words[0];
  if (mode == "loop") return loop(comm, std::stoul(words[1]), words.size() > 2 ? std::stol(words[2]) : 1'000'000'000);
  if (mode == "pause") {
    const long laps = std::stol(words[2]);
    return loop(comm, std::stoul(words[1]), laps, false, comm.rank() == 1 ? laps / 2 : -1);
  }
  if (mode == "disagree") return disagree(comm, words[1]);
  if (mode == "matrix") return matrix(comm);
  if (mode == "huge") return huge(comm);
  loop(comm, 1000, std::stol(words[2]), true);
  if (comm.rank() != std::stoi(words[1])) return loop(comm, 1000, 1'000'000'000, true);
  commit_fault(mode);
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  return lockstep::rank_main([&](Communicator& comm) { obey(comm, words); });
}
