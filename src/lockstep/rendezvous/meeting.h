// The ranks of a job, met: who they are, which of them share a host, and a line to the store.
//
// A conference call: everyone dials the same number (the store), says who they are, and waits until all have come.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/clock.h"
#include "lockstep/base/types.h"
#include "lockstep/rendezvous/identity.h"
#include "lockstep/rendezvous/store.h"
#include "lockstep/rendezvous/store_server.h"

namespace lockstep::rendezvous {

struct Peer {
  Rank rank = 0;
  std::string host;      // host_identity(): equal texts share memory and pids
  std::string hostname;  // for people
  int pid = 0;
  std::uint64_t started = 0;
};

// Owned by one rank. Methods may be called from several threads; the store's calls take turns.
class Meeting {
 public:
  // Blocks until all ranks are there. On timeout throws TimedOut that names the missing ones.
  // In a world of one there is nobody to meet and no store.
  Meeting(const Identity& identity, const Place& place, Duration timeout);
  // A rank that serves the store stays until the others have compared their texts, for a second at the most.
  ~Meeting();
  Meeting(const Meeting&) = delete;
  // As the environment says, with LOCKSTEP_RENDEZVOUS_TIMEOUT (300 s). Also limits the math libraries' threads, with a
  // warning, when the launcher did not.
  static std::unique_ptr<Meeting> from_environment();

  const Identity& me() const { return identity_; }
  // What proves to a peer that a data connection comes from a rank of this job. The job's secret; where there is none
  // (one host, one user, a Unix socket), one that rank 0 has drawn and handed out through the store.
  const std::string& data_secret() const { return data_secret_; }
  const std::vector<Peer>& peers() const { return peers_; }
  std::vector<Rank> ranks_on_my_host() const;
  bool all_on_one_host() const;

  // The address of this host that other hosts reach it by: the one that leads to the store.
  std::string my_address_towards_store() const;

  // Under `name`, all ranks give a text and get everyone's, in rank order. Every rank must call it.
  std::vector<std::string> exchange(const std::string& name, const std::string& mine);
  // What a rank has given for an exchange that this rank has not come to yet, if anything.
  std::optional<std::string> given(const std::string& name, Rank rank) const;
  // Every rank has reached this point.
  void barrier(const std::string& name);

  // Under `name`, `count` ranks give a text when they leave; all get the one that came first, and nobody waits. Nothing
  // when the store is gone.
  std::optional<std::string> compare(const std::string& name, const std::string& mine, int count) noexcept;

  // Publishes this rank's own failure, or what it was doing when a peer failed, for the launcher's report.
  void report(const char* kind, const std::string& text) noexcept;
  // How a rank ended, as the launcher published it; waits for it as long as `patience`. Empty when nobody knows.
  std::string fate_of(Rank rank, Duration patience) const noexcept;

  // The claim that opens a data connection to a peer.
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
  std::unique_ptr<StoreServer> server_;  // on the rank that serves
  std::unique_ptr<StoreClient> store_;   // none in a world of one
  std::vector<Peer> peers_;
  std::atomic<bool> compared_{false};
};

}  // namespace lockstep::rendezvous
