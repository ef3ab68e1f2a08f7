// A rank that does as it is told, for tests that harm it.
//
//   rank_under_test ring [LAPS]           pass a token round; rank 0 prints "lap N" now and then
//   rank_under_test FAULT RANK LAPS       the same, but after LAPS that rank has the fault:
//                                         segv, abort, throw, throw42, exit0, exit3, unflushed (a line, then exit3),
//                                         hang (in no call), works (ends with works open)
//   rank_under_test pause RANK LAPS       the same, LAPS twice; between them that rank stops itself, by SIGSTOP
//   rank_under_test large [LAPS]          the token is 8 MB
//   rank_under_test digest                everyone exchanges with everyone; each rank prints a digest of what it got,
//                                         and how long its set-up took
//   rank_under_test storm                 the same, while a timer interrupts every system call
//   rank_under_test late SECONDS          rank 1 joins so much later
#include <sys/time.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/base/clock.h"
#include "lockstep/error.h"
#include "lockstep/transport.h"
#include "lockstep/world.h"

namespace {

using lockstep::Rank;
using lockstep::World;

struct Orders {
  std::string mode;
  Rank rank = -1;
  long laps = 1'000'000'000;
};

void say(const std::string& text) {
  std::printf("%s\n", text.c_str());
  std::fflush(stdout);
}

void commit_fault(World& world, const std::string& fault) {
  if (fault == "segv") ::raise(SIGSEGV);
  if (fault == "abort") std::abort();
  if (fault == "throw") throw std::runtime_error("the loss is not a number");
  if (fault == "throw42") throw 42;
  if (fault == "exit0") std::_Exit(0);
  if (fault == "exit3") std::_Exit(3);
  if (fault == "unflushed") {
    std::printf("last words\n");
    std::_Exit(3);
  }
  if (fault == "hang") {
    say("hanging");
    while (true) std::this_thread::sleep_for(std::chrono::seconds(1));
  }
  if (fault == "works") {  // destruction with works outstanding
    static std::vector<std::byte> buffer(8 << 20);
    static auto receiving = world.transport().recv_async(world.prev_rank(), 77, buffer);
    static auto sending = world.transport().send_async(world.next_rank(), 77, buffer);
  }
}

void ring(World& world, const Orders& orders, std::size_t bytes) {
  auto& transport = world.transport();
  std::vector<std::byte> token(bytes);
  for (long lap = 0; lap < orders.laps; ++lap) {
    if (world.rank() != 0) transport.recv(world.prev_rank(), 0, token);
    transport.send(world.next_rank(), 0, token);
    if (world.rank() == 0) transport.recv(world.prev_rank(), 0, token);
    if (world.rank() == 0 && lap % (bytes > 8 ? 10 : 100) == 5) say("lap " + std::to_string(lap));
  }
}

void paused_ring(World& world, const Orders& orders) {
  ring(world, {"", -1, orders.laps}, 8);
  std::jthread stopper;  // another thread, so that the stop hits this one wherever it is by then
  if (world.rank() == orders.rank) stopper = std::jthread([] { ::kill(::getpid(), SIGSTOP); });
  ring(world, {"", -1, orders.laps}, 8);
}

void faulty_ring(World& world, const Orders& orders) {
  ring(world, {"", -1, orders.laps}, 8);
  if (world.rank() == orders.rank) {
    commit_fault(world, orders.mode);
    return;
  }
  ring(world, {"", -1, 1'000'000'000}, 8);
}

// What everyone sends to everyone, in sizes that take every path. The digest must not depend on anything but the world.
std::uint64_t digest(World& world) {
  auto& transport = world.transport();
  std::uint64_t hash = 14695981039346656037ULL;
  for (const std::size_t bytes :
       {std::size_t{0}, std::size_t{1}, std::size_t{4097}, std::size_t{70'001}, std::size_t{3'000'001}})
    for (int round = 0; round < 5; ++round) {
      std::vector<std::vector<std::byte>> out;
      std::vector<lockstep::transport::PendingMessage> works;
      for (Rank peer = 0; peer < world.size(); ++peer) {
        if (peer == world.rank()) continue;
        std::vector<std::byte> message(bytes);
        for (std::size_t i = 0; i < bytes; ++i)
          message[i] = static_cast<std::byte>(i * 31 + static_cast<std::size_t>(world.rank() * 7 + peer * 3 + round));
        out.push_back(std::move(message));
        works.push_back(transport.send_async(peer, 5, out.back()));
      }
      for (Rank peer = 0; peer < world.size(); ++peer) {
        if (peer == world.rank()) continue;
        std::vector<std::byte> in(bytes);
        transport.recv(peer, 5, in);
        for (const std::byte byte : in) hash = (hash ^ std::to_integer<std::uint64_t>(byte)) * 1099511628211ULL;
      }
      for (auto& work : works) work.wait();
    }
  return hash;
}

void start_storm() {
  struct sigaction action {};
  action.sa_handler = [](int) {};  // and no SA_RESTART
  ::sigaction(SIGALRM, &action, nullptr);
  const itimerval timer{{0, 200}, {0, 200}};
  ::setitimer(ITIMER_REAL, &timer, nullptr);
}

void obey(World& world, const Orders& orders) {
  if (orders.mode == "ring") return ring(world, orders, 8);
  if (orders.mode == "large") return ring(world, orders, 8 << 20);
  if (orders.mode == "digest" || orders.mode == "storm") {
    char text[64];
    std::snprintf(text, sizeof text, "digest %016lx over %s", digest(world), world.transport().name().c_str());
    return say(text);
  }
  if (orders.mode == "pause") return paused_ring(world, orders);
  if (orders.mode == "late") return ring(world, {"", -1, 10}, 8);
  faulty_ring(world, orders);
}

}  // namespace

int main(int argc, char** argv) {
  Orders orders;
  orders.mode = argc > 1 ? argv[1] : "ring";
  if (orders.mode == "ring" || orders.mode == "large") {
    if (argc > 2) orders.laps = std::atol(argv[2]);
  } else if (argc > 3) {
    orders.rank = std::atoi(argv[2]);
    orders.laps = std::atol(argv[3]);
  }
  const char* rank = std::getenv("RANK");
  if (orders.mode == "late" && rank != nullptr && std::atoi(rank) == 1)
    std::this_thread::sleep_for(std::chrono::milliseconds(static_cast<long>(std::atof(argv[2]) * 1000)));
  if (orders.mode == "storm") start_storm();
  const auto began = lockstep::Clock::now();
  return lockstep::rank_main([&](World& world) {
    if (orders.mode == "digest") say("set up in " + std::to_string(lockstep::seconds_since(began)) + " s");
    obey(world, orders);
  });
}
