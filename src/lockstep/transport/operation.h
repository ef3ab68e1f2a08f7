// One send or receive that is under way, and how it ended. Both transports use it; users see it as a PendingMessage.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <string>

#include "lockstep/base/clock.h"
#include "lockstep/error.h"
#include "lockstep/transport.h"
#include "lockstep/types.h"

namespace lockstep::transport {

struct Operation {
  enum class Kind : std::uint8_t { send, recv };
  enum class State : std::uint8_t { pending, done, failed };

  Operation(Kind which, Rank other, Tag its_tag, std::byte* memory, std::size_t size, Duration allowed,
            const Label& its_label = {})
      : kind(which), peer(other), tag(its_tag), label(its_label), data(memory), bytes(size), timeout(allowed) {}

  const Kind kind;
  bool async = false;
  std::int16_t slot = -1;  // for shm: the transfer slot that a single-copy send holds, or -1
  const Rank peer;
  const Tag tag;
  const Label label;
  std::byte* const data;  // a send only reads it
  const std::size_t bytes;
  std::size_t moved = 0;  // for sends: bytes that were handed to the queue or the socket
  const Duration timeout;
  std::exception_ptr error;  // set before `state` becomes failed
  // Written with the endpoint's mutex locked. PendingMessage also reads it without the mutex.
  std::atomic<State> state{State::pending};

  bool pending() const { return state.load(std::memory_order_acquire) == State::pending; }
  std::string describe() const;  // "recv of 8 bytes from rank 2, tag 0"
  // What an error of this operation on rank `me` knows.
  ErrorFacts facts(Rank me, const std::string& message) const;
};

}  // namespace lockstep::transport
