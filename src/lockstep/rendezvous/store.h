// The store: a small table of keys and values through which ranks find each other. One process serves it: the launcher,
// or rank 0 if the launcher is not `lockstep run`. Every rank is a client.
//
// On the wire, after the handshake, a request is wire::Request + key + value, and a reply is wire::Reply + value. The
// sizes are limited by kMaxKey and kMaxValue; a larger frame ends the connection.
#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>

#include "lockstep/base/clock.h"
#include "lockstep/base/fd.h"
#include "lockstep/rendezvous/address.h"
#include "lockstep/rendezvous/handshake.h"

namespace lockstep::rendezvous {

namespace wire {

constexpr std::size_t kMaxKey = 256;
constexpr std::size_t kMaxValue = 1 << 20;

enum class Op : std::uint32_t { set = 1, get = 2, wait = 3, add = 4, barrier = 5, compare = 6 };
enum class Status : std::uint32_t { ok = 1, absent = 2, timed_out = 3, refused = 4 };

struct Request {
  Op op;
  std::uint32_t key_bytes;
  std::uint32_t value_bytes;
  std::uint32_t count;  // for barrier and compare: how many clients take part
  std::int64_t number;  // for add: the amount; for wait and barrier: the timeout in milliseconds
};
struct Reply {
  Status status;
  std::uint32_t value_bytes;
  std::int64_t number;  // for add: the new sum
};

}  // namespace wire

// A client of the store. It may be called from several threads; their calls take turns. Once it has its turn, a call
// ends by its deadline (wait and barrier up to 2 s later). A call that misses its deadline or loses the connection
// throws, and then every later call throws Error.
class StoreClient {
 public:
  // Connects and introduces itself. Throws Error if it is refused, and TimedOut if nobody serves the store by the
  // deadline. With `check_uid`, the server on a Unix socket must belong to the user of this process.
  StoreClient(const Address& address, const std::string& secret, const Claim& claim, const Deadline& deadline,
              bool check_uid = false);

  void set(const std::string& key, const std::string& value, const Deadline& deadline);
  std::optional<std::string> get(const std::string& key, const Deadline& deadline);
  // Blocks until somebody sets the key, and returns its value. Returns nothing if the deadline passed first.
  std::optional<std::string> wait(const std::string& key, const Deadline& deadline);
  // Adds to a counter that starts at 0 and returns the new sum.
  std::int64_t add(const std::string& key, std::int64_t amount, const Deadline& deadline);
  // Blocks until `count` clients have called it with this key. Returns false if the deadline passed first. It is one
  // request and one answer: when it returns, nobody has another question for the server, so the server may leave.
  bool barrier(const std::string& key, int count, const Deadline& deadline);
  // Each of `count` clients gives a value under this key and gets the value that came first. So a client that comes
  // later can tell whether its own value differs, and nobody waits. The key is free again once all have come.
  std::string compare(const std::string& key, const std::string& value, int count, const Deadline& deadline);
  // The IP address of this end of the connection.
  std::string local_host() const;

 private:
  struct Result {
    wire::Reply reply;
    std::string value;
  };
  Result call(wire::Op op, const std::string& key, const std::string& value, std::int64_t number,
              const Deadline& deadline, std::uint32_t count = 0);

  Address address_;
  std::mutex mutex_;  // guards connection_: one request at a time
  Fd connection_;
};

}  // namespace lockstep::rendezvous
