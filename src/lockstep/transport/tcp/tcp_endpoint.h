// The transport over sockets: one connection per pair of ranks, TCP or Unix. connection.h says what travels on it.
#pragma once

#include <poll.h>

#include <memory>
#include <vector>

#include "lockstep/options.h"
#include "lockstep/rendezvous/meeting.h"
#include "lockstep/transport/endpoint.h"
#include "lockstep/transport/tcp/connection.h"

namespace lockstep::transport::tcp {

// Collective: every rank of the meeting must call it.
std::unique_ptr<Transport> connect(rendezvous::Meeting& meeting, const Options& options,
                                   const EndpointCallbacks& callbacks);

class TcpEndpoint final : public Endpoint {
 public:
  // `sockets` are the connections by rank; the entry of this rank is empty.
  TcpEndpoint(const rendezvous::Meeting& meeting, std::vector<Fd> sockets, const Options& options,
              const EndpointCallbacks& callbacks);
  ~TcpEndpoint() override;

  TransportKind kind() const override { return TransportKind::tcp; }

 private:
  void start_send(Operation& operation) override;
  bool forget_send(Operation& operation) override;
  bool progress_with(Rank peer) override;
  void sleep(Lock& lock, Duration at_most) override;
  void after_sleep() override;
  void interrupt_sleep() override;
  void check_peers() override;
  std::string census() override;

  void leave(const std::optional<Cause>& cause) noexcept override;
  void lost(Rank peer, const std::string& why, int error);
  bool process_ended(Rank peer) const;
  void look_at_network();

  const std::vector<rendezvous::Peer> peers_;
  const std::string host_;                                // host_identity() of this rank
  std::vector<std::unique_ptr<Connection>> connections_;  // by rank; null for this rank
  std::vector<std::string> addresses_;                    // the peers' addresses by rank, for messages
  Clock::time_point next_look_;                           // when the network is checked next
  Fd interrupt_;                                          // an eventfd that ends a sleep
  std::vector<pollfd> polled_;                            // used only by the one thread that sleeps
};

}  // namespace lockstep::transport::tcp
