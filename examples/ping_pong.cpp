// Each rank sends a message to the next rank in the ring, gets it back, and measures the time.
//   lockstep run -n 4 -- ping_pong          LOCKSTEP_TRANSPORT=tcp lockstep run -n 2 -- ping_pong
#include <chrono>
#include <cstdio>
#include <vector>

#include "lockstep/error.h"
#include "lockstep/transport.h"
#include "lockstep/world.h"

namespace {

constexpr lockstep::Tag kPing = 1;
constexpr lockstep::Tag kPong = 2;

// region round
// One round: all ranks ping their next rank at the same time, answer their previous rank, and wait for their own
// answer. Sends do not deadlock although nobody has posted a receive yet.
void round(lockstep::World& world, lockstep::Bytes message, lockstep::Bytes answer) {
  auto& transport = world.transport();
  transport.send(world.next_rank(), kPing, message);
  transport.recv(world.prev_rank(), kPing, answer);
  transport.send(world.prev_rank(), kPong, answer);
  transport.recv(world.next_rank(), kPong, answer);
}
// endregion

}  // namespace

int main() {
  return lockstep::rank_main([](lockstep::World& world) {
    for (const std::size_t bytes : {std::size_t{8}, std::size_t{64} << 10, std::size_t{4} << 20}) {
      std::vector<std::byte> message(bytes, static_cast<std::byte>(world.rank() + 1));
      std::vector<std::byte> answer(bytes);
      const int rounds = bytes > (1 << 20) ? 20 : 200;
      round(world, message, answer);
      const auto start = std::chrono::steady_clock::now();
      for (int i = 0; i < rounds; ++i) round(world, message, answer);
      const std::chrono::duration<double, std::micro> time = std::chrono::steady_clock::now() - start;
      if (answer != message) throw lockstep::Error("the answer is not what was sent");
      if (world.rank() == 0)
        std::printf("%8zu bytes over %s, %d ranks: %9.1f us a round trip\n", bytes, world.transport().name().c_str(),
                    world.size(), time.count() / rounds);
    }
  });
}
