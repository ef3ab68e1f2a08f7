// The transport between ranks that share memory.
//
// Small messages travel in queues (queue.h), one per ordered pair of ranks. Large messages are offered: a record
// carries the address, and both sides copy pieces straight from the sender's memory to the receiver's (layout.h,
// Transfer). If the kernel does not allow that, large messages go through the queue in pieces, and both sides copy at
// the same time.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "lockstep/error.h"
#include "lockstep/options.h"
#include "lockstep/rendezvous/meeting.h"
#include "lockstep/transport/endpoint.h"
#include "lockstep/transport/peer_process.h"
#include "lockstep/transport/shm/peer_memory.h"
#include "lockstep/transport/shm/region_layout.h"

namespace lockstep::transport::shm {

// Collective: every rank of the meeting must call it, and all must be on one host. Throws Unavailable on all ranks or
// on none.
std::unique_ptr<Transport> connect(rendezvous::Meeting& meeting, const Options& options,
                                   const EndpointCallbacks& callbacks);

class ShmEndpoint final : public Endpoint {
 public:
  ShmEndpoint(const rendezvous::Meeting& meeting, std::shared_ptr<Region> region, std::size_t queue_bytes,
              const Options& options, const EndpointCallbacks& callbacks);
  ~ShmEndpoint() override;

  TransportKind kind() const override { return TransportKind::shm; }

  // Finds out by trial which peers' memory can be reached. Collective: every rank must call it, between two barriers.
  void try_single_copy();
  bool single_copy_to(Rank peer) const;

 private:
  struct Link {  // the state of the connection to one peer
    Producer out;
    Consumer in;
    PeerMemory memory;
    std::shared_ptr<const PeerProcess> process;
    std::vector<Incoming*> pulls;
    std::uint32_t slots_held = 0;  // one bit per transfer slot that a send of this rank still holds
  };

  void start_send(Operation& operation) override;
  bool forget_send(Operation& operation) override;
  void stop_transfers(Rank peer) override;
  void pull(Rank peer, Incoming& message) override;
  bool progress_with(Rank peer) override;
  void take_in() override;
  void sleep(Lock& lock, Duration at_most) override;
  void after_sleep() override;
  void interrupt_sleep() override;
  void check_peers() override;
  std::string census() override;
  void note_waiting(Rank peer) override;

  bool drain(Rank peer);
  void take(Rank peer, const Record& record);
  bool continue_pulls(Rank peer);
  bool continue_sends(Rank peer);
  bool hand_over(Operation& operation);
  bool offer(Operation& operation);
  bool help_transfer(Operation& operation);
  void release_slot(Operation& operation);
  void lose(Rank peer);
  void finish_pulls();
  void stop_copying(Rank peer, Transfer& entry, std::size_t total, bool writes_here);
  bool gone(Rank peer, std::chrono::milliseconds patience) const;
  void hear_failure(Rank peer);
  void hear_goodbye(Rank peer);
  void ring(Rank peer);
  void leave(const std::optional<Cause>& cause) noexcept override;
  Link& link(Rank peer) { return links_[index_of(peer)]; }
  Transfer& transfer(Rank from, Rank to, std::uint16_t slot) { return layout_.pair(from, to).transfers[slot]; }

  const std::shared_ptr<Region> region_;
  const RegionLayout layout_;
  const bool allow_single_copy_;
  const std::size_t single_copy_from_;
  const std::function<void()> before_copy_;  // for tests
  std::vector<Link> links_;                  // by rank; the entry of this rank is unused
  std::uint64_t sends_started_ = 0;
  std::uint64_t readable_word_ = 0;  // the word that peers read in the trial
  std::uint64_t writable_word_ = 0;  // the word that peers write in the trial
};

}  // namespace lockstep::transport::shm
