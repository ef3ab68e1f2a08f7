// The store: a small table of keys and values through which ranks find each other. One process serves it (the launcher,
// or rank 0 when there is no launcher of ours), every rank is a client.
//
// On the wire, after the handshake: a request is Header + key + value, a reply is Header + value. Frames are bounded by
// kMaxKey and kMaxValue; anything larger ends the connection.
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
  std::uint32_t count;  // barrier, compare: how many must arrive
  std::int64_t number;  // add: the amount. wait and barrier: milliseconds.
};
struct Reply {
  Status status;
  std::uint32_t value_bytes;
  std::int64_t number;  // add: the new sum
};

}  // namespace wire

// A client of the store. May be called from several threads; calls take turns. Every call ends by its deadline.
class StoreClient {
 public:
  // Connects and introduces itself; throws when refused or when nobody serves by the deadline.
  // `check_uid`: on a Unix socket, the server must belong to this process's user.
  StoreClient(const Address& address, const std::string& secret, const Claim& claim, const Deadline& deadline,
              bool check_uid = false);

  void set(const std::string& key, const std::string& value, const Deadline& deadline);
  std::optional<std::string> get(const std::string& key, const Deadline& deadline);
  // Blocks until somebody sets the key; nothing when the deadline passed first.
  std::optional<std::string> wait(const std::string& key, const Deadline& deadline);
  // Adds to a counter that starts at 0 and returns the new sum.
  std::int64_t add(const std::string& key, std::int64_t amount, const Deadline& deadline);
  // Blocks until `count` clients have called it with this key; false when the deadline passed first. One request, one
  // answer: when it returns, nobody has a question left for the server, which may go.
  bool barrier(const std::string& key, int count, const Deadline& deadline);
  // Each of `count` clients gives a value under this key; all get the one that came first. So whoever comes later can
  // tell whether its own differs, and nobody waits. The key is free again once all have come.
  std::string compare(const std::string& key, const std::string& value, int count, const Deadline& deadline);
  // This end's IP address.
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
