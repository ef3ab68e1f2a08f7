// The meeting of the ranks of a job: who they are, which of them share a host, and a connection to the store.
//
// It is like a conference call: everyone dials the same number (the store), says who they are, and waits until all have
// come.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/clock.h"
#include "lockstep/rendezvous/identity.h"
#include "lockstep/rendezvous/store.h"
#include "lockstep/rendezvous/store_server.h"
#include "lockstep/types.h"

namespace lockstep::rendezvous {

// A rank as the others know it.
struct Peer {
  Rank rank = 0;
  std::string host;      // host_identity(); ranks with equal texts can share memory and pids
  std::string hostname;  // for messages
  int pid = 0;
  std::uint64_t started = 0;
};

// Owned by one rank. Methods may be called from several threads at once; calls to the store take turns.
class Meeting {
 public:
  // Blocks until all ranks have come. Throws a TimedOut that names the missing ranks. A world of one meets nobody and
  // has no store.
  Meeting(const Identity& identity, const Place& place, Duration timeout);
  // On the rank that serves the store, waits until the other ranks have made their comparisons (compare()), for at most
  // one second.
  ~Meeting();
  Meeting(const Meeting&) = delete;
  // The meeting that the environment describes, with the timeout LOCKSTEP_RENDEZVOUS_TIMEOUT (300 s by default). If the
  // launcher has not limited the threads of the math libraries, it does so, with a warning.
  static std::unique_ptr<Meeting> from_environment();

  const Identity& me() const { return identity_; }
  // The secret that proves to a peer that a data connection comes from a rank of this job. It is the job's secret. If
  // the job has none (one host, one user, a Unix socket), it is one that rank 0 has drawn and handed out through the
  // store.
  const std::string& data_secret() const { return data_secret_; }
  const std::vector<Peer>& peers() const { return peers_; }
  std::vector<Rank> ranks_on_my_host() const;
  bool all_on_one_host() const;

  // The address under which other hosts can reach this host: the local address of the connection to the store. If there
  // is no such connection, or it is a Unix socket, it is 127.0.0.1.
  std::string my_address_towards_store() const;

  // Gives a text, and returns the texts of all ranks in rank order. Collective: every rank must call it with the same
  // `name`, which can be used only once. Throws TimedOut.
  std::vector<std::string> exchange(const std::string& name, const std::string& mine);
  // The text that a rank has given for an exchange that this rank has not called yet, or nothing.
  std::optional<std::string> given(const std::string& name, Rank rank) const;
  // Blocks until every rank has called it. Each `name` can be used only once. Throws TimedOut.
  void barrier(const std::string& name);

  // For ranks that leave: `count` ranks each give a text under `name`, and each gets the text that came first. Nobody
  // waits for another rank. Returns nothing if the store is gone.
  std::optional<std::string> compare(const std::string& name, const std::string& mine, int count) noexcept;

  // Publishes a text for the launcher's report. `kind` is "error" for this rank's own failure, and "waiting" for what
  // it was doing when a peer failed.
  void report(const char* kind, const std::string& text) noexcept;
  // How a rank ended, as the launcher published it. Waits for that for at most `patience`. Empty if nobody knows.
  std::string fate_of(Rank rank, Duration patience) const noexcept;

  // The claim with which this rank opens a data connection to a peer.
  Claim data_claim() const;
  Deadline deadline() const { return Deadline::in(timeout_); }

 private:
  std::unique_ptr<StoreClient> reach_store(const Deadline& deadline) const;
  bool in_forked_child() const;
  std::string wait_for(const std::string& prefix, Rank rank, const Deadline& deadline);
  [[noreturn]] void throw_missing(const std::string& prefix, const Deadline& deadline);

  Identity identity_;
  Place place_;
  Duration timeout_;
  std::uint64_t instance_;
  std::string data_secret_;
  int pid_;
  std::unique_ptr<StoreServer> server_;  // null, except on the rank that serves the store
  std::unique_ptr<StoreClient> store_;   // null in a world of one
  std::vector<Peer> peers_;
  std::atomic<bool> compared_{false};
};

}  // namespace lockstep::rendezvous
