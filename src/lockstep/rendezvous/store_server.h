// Serves the store of one job on a thread of its own.
//
// - Strangers are dropped: callers that do not complete the handshake within 5 s, give a wrong proof, or send a frame
//   that is too long. The first stranger of each kind is logged as a warning, and the job goes on. In a flood, the
//   oldest stranger is dropped to make room for the next caller, which may be a rank. A rank that was dropped in this
//   way calls again (dial.h).
// - Callers that claim a rank which is taken, another world size or another generation are refused with a reason.
// - set and get may be called by the serving process itself, from any thread.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/base/clock.h"
#include "lockstep/base/fd.h"
#include "lockstep/rendezvous/address.h"
#include "lockstep/rendezvous/handshake.h"
#include "lockstep/rendezvous/socket.h"
#include "lockstep/rendezvous/store.h"

namespace lockstep::rendezvous {

class StoreServer {
 public:
  struct Options {
    Address address;
    std::string secret;
    int world = 1;
    int generation = 0;
    bool check_uid = false;  // on a Unix socket, accept only the user of this process
    Duration handshake_timeout = 5s;
  };

  // The server listens when the constructor returns. Throws SystemError if the address is taken.
  explicit StoreServer(Options options);
  // Sends the replies that are still to be sent, for at most one second, and then closes all connections.
  ~StoreServer();

  const Address& address() const { return listener_.address; }
  void set(const std::string& key, const std::string& value);
  std::optional<std::string> get(const std::string& key) const;
  // Waits until every comparison that clients have begun is complete. Returns false if that takes longer than
  // `patience`.
  bool comparisons_end_within(Duration patience) const;
  // The ranks that have introduced themselves so far.
  std::set<Rank> ranks_seen() const;

 private:
  struct Connection;
  struct Comparison {
    std::string first;
    std::uint32_t came = 0;
  };

  void serve();
  void serve_until_stopped();
  void hear(Connection& connection);
  void accept_waiting();
  bool drop_oldest_stranger(const std::string& why);
  void on_readable(Connection& connection);
  void finish_handshake(Connection& connection);
  std::string objection_to(const Claim& claim) const;
  bool handle_frames(Connection& connection);
  void handle(Connection& connection, const wire::Request& request, const std::string& key, std::string value);
  void reply(Connection& connection, wire::Status status, std::string_view value, std::int64_t number = 0);
  void flush(Connection& connection);
  void compare(Connection& connection, const std::string& key, std::string value, std::uint32_t count);
  void wait_for(Connection& connection, const std::string& key, std::int64_t milliseconds);
  void set_locked(const std::string& key, std::string value);
  std::int64_t add_locked(const std::string& key, std::int64_t amount);
  void expire();
  void drop_stranger(Connection& connection, const std::string& why);
  int next_timeout_ms() const;
  void wake() const;

  const Options options_;
  const int pid_;  // the process that serves; in a forked child the destructor only detaches the thread
  Listener listener_;
  Fd wake_;

  mutable std::mutex mutex_;  // guards everything below
  std::map<std::string, std::string> values_;
  std::map<std::string, Comparison> comparisons_;
  std::map<Rank, std::uint64_t> instances_;  // which process holds each rank
  std::vector<std::unique_ptr<Connection>> connections_;
  std::set<std::string> complaints_;  // kinds of strangers that have been logged
  bool stopping_ = false;
  Deadline deaf_until_ = Deadline::in(0s);  // no accept before this time, because no descriptor or memory was left

  std::thread thread_;  // declared last, because it uses all members above
};

}  // namespace lockstep::rendezvous
