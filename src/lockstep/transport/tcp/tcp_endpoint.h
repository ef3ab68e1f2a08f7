// The transport over sockets: one connection a pair, TCP or Unix. See connection.h for what travels on it.
#pragma once

#include <poll.h>

#include <memory>
#include <vector>

#include "lockstep/rendezvous/meeting.h"
#include "lockstep/transport/endpoint.h"
#include "lockstep/transport/options.h"
#include "lockstep/transport/tcp/connection.h"

namespace lockstep::transport::tcp {

// Collective: every rank of the meeting calls it.
std::unique_ptr<Transport> connect(rendezvous::Meeting& meeting, const Options& options,
                                   const Surroundings& surroundings);

class TcpEndpoint final : public Endpoint {
 public:
  // `sockets` by rank; our own is empty.
  TcpEndpoint(const rendezvous::Meeting& meeting, std::vector<Fd> sockets, const Options& options,
              const Surroundings& surroundings);
  ~TcpEndpoint() override;

  std::string name() const override { return "tcp"; }

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
  const std::string host_;                                // this rank's
  std::vector<std::unique_ptr<Connection>> connections_;  // by rank; our own is null
  std::vector<std::string> addresses_;                    // by rank, for messages
  Clock::time_point next_look_;                           // at the network
  Fd interrupt_;                                          // an eventfd
  std::vector<pollfd> polled_;                            // used by the one thread that sleeps
};

}  // namespace lockstep::transport::tcp
