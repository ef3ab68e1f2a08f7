#include "lockstep/transport/tcp/tcp_endpoint.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>

#include "lockstep/base/clock.h"
#include "lockstep/base/cpu.h"
#include "lockstep/base/log.h"
#include "lockstep/error.h"
#include "lockstep/rendezvous/socket.h"
#include "lockstep/transport/peer_process.h"

namespace lockstep::transport::tcp {
namespace {

constexpr auto kNetworkLookEvery = 1s;  // between two checks of the network
constexpr auto kDying = 200ms;          // how long to wait for the end of a process that has closed its sockets

// A look at a socket is a system call of about 300 ns. To sleep and be woken takes about 40 us on a virtual machine. So
// it pays to look for about twice that long.
WaitPolicy policy_for(int local_ranks) {
  return local_ranks <= allowed_cores() ? WaitPolicy{1, 300, 0} : WaitPolicy{1, 0, 0};
}

}  // namespace

TcpEndpoint::TcpEndpoint(const rendezvous::Meeting& meeting, std::vector<Fd> sockets, const Options& options,
                         const EndpointCallbacks& callbacks)
    : Endpoint(meeting.me().rank, meeting.me().size, options.timeout,
               policy_for(static_cast<int>(meeting.ranks_on_my_host().size())), callbacks),
      peers_(meeting.peers()),
      host_(peers_[index_of(rank_)].host),
      addresses_(index_of(size_)),
      next_look_(Clock::now() + kNetworkLookEvery),
      interrupt_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (!interrupt_)
    throw SystemError(errno, fmt::format("rank {}: cannot make an eventfd", rank_), "a higher `ulimit -n`");
  for (Rank peer = 0; peer < size_; ++peer) {
    if (peer == rank_) {
      connections_.push_back(nullptr);
      continue;
    }
    Connection::Events events{
        [this](Operation& operation) { finished(operation); },
        [this, peer](Incoming& message, std::size_t bytes) { arrived(peer, message, bytes); },
        [this](const Cause& cause) { peer_failed(cause); },
        [this, peer] { peer_left(peer); },
        [this, peer](const std::string& why, int error) { lost(peer, why, error); },
    };
    addresses_[index_of(peer)] = rendezvous::describe_peer(sockets[index_of(peer)]);
    connections_.push_back(std::make_unique<Connection>(std::move(sockets[index_of(peer)]), options.segment_bytes,
                                                        mailbox(peer), sends(peer), std::move(events)));
  }
}

TcpEndpoint::~TcpEndpoint() {
  stop_helper();
  if (in_forked_child()) return;
  const auto why = cause();
  fail_outstanding();
  const Lock lock(mutex_);
  leave(why);
}

// Called when a connection ended without a goodbye. An end of stream comes from a process that died. A reset may come
// from a process that died, or from something on the way. Whatever else the kernel reports comes from the network.
void TcpEndpoint::lost(Rank peer, const std::string& why, int error) {
  log::debug("rank {}: connection to rank {} lost: {}", rank_, peer, why);
  if (error == EPROTO) return peer_makes_no_sense(peer, addresses_[index_of(peer)], why);
  const bool may_be_the_network = error != 0 && error != EPIPE;
  if (!may_be_the_network || process_ended(peer)) return peer_died(peer);
  peer_unreachable(peer, addresses_[index_of(peer)], why);
}

// Whether a peer's process has ended. False for a rank on another host, because nobody here can tell.
bool TcpEndpoint::process_ended(Rank peer) const {
  const rendezvous::Peer& other = peers_[index_of(peer)];
  if (other.host != host_) return false;
  try {
    return PeerProcess(other).has_ended(kDying);
  } catch (const SystemError& error) {
    log::debug("rank {}: {}", rank_, error.what());
    return false;
  }
}

void TcpEndpoint::check_peers() {
  progress(-1);  // the socket of a dead peer reports that itself
  if (failed() || Clock::now() < next_look_) return;
  next_look_ = Clock::now() + kNetworkLookEvery;
  look_at_network();
}

// Looks for peers that are cut off, because no socket reports that. The kernel repeats what was not acknowledged, and
// asks idle peers for a sign of life. A peer that has not answered for half of the timeout is unreachable. A peer that
// is merely stopped or busy does answer, because its kernel does.
void TcpEndpoint::look_at_network() {
  for (Rank peer = 0; peer < size_ && !failed(); ++peer) {
    const auto& connection = connections_[index_of(peer)];
    tcp_info info{};
    socklen_t length = sizeof info;
    if (!connection || !connection->open() ||
        ::getsockopt(connection->fd(), IPPROTO_TCP, TCP_INFO, &info, &length) != 0)
      continue;
    const bool asks_in_vain = info.tcpi_retransmits > 0 || info.tcpi_probes > 0;
    const auto silent_for = std::chrono::milliseconds(info.tcpi_last_ack_recv);
    if (asks_in_vain && silent_for >= timeout_ / 2)
      peer_unreachable(peer, addresses_[index_of(peer)],
                       fmt::format("nothing was acknowledged for {:.3g} s; try: see whether its host is up, and the "
                                   "network between the hosts (ping, firewall)",
                                   std::chrono::duration<double>(silent_for).count()));
  }
}

void TcpEndpoint::leave(const std::optional<Cause>& cause) noexcept {
  for (auto& connection : connections_) {
    if (!connection) continue;
    if (cause)
      connection->say_last(cause->ending == Ending::mismatch ? FrameHeader::mismatch : FrameHeader::failure,
                           cause->rank, cause->text.substr(0, 4000));
    else
      connection->say_last(FrameHeader::goodbye);
  }
}

void TcpEndpoint::start_send(Operation& operation) {
  Connection& connection = *connections_[index_of(operation.peer)];
  const bool idle = sends(operation.peer).empty();
  sends(operation.peer).push_back(&operation);
  if (idle) connection.write_some();
  if (operation.pending()) notify();  // a sleeping thread must now also wait for room to write
}

bool TcpEndpoint::forget_send(Operation& operation) {
  return connections_[index_of(operation.peer)]->forget(operation);
}

bool TcpEndpoint::progress_with(Rank peer) {
  Connection& connection = *connections_[index_of(peer)];
  const bool wrote = connection.has_output() && connection.write_some();
  return connection.read_some() || wrote;
}

void TcpEndpoint::sleep(Lock& lock, Duration at_most) {
  polled_.clear();
  polled_.push_back({interrupt_.get(), POLLIN, 0});
  for (const auto& connection : connections_) {
    const bool watch = connection && connection->open();
    polled_.push_back({watch ? connection->fd() : -1,
                       static_cast<short>(POLLIN | (watch && connection->has_output() ? POLLOUT : 0)), 0});
  }
  const int timeout = Deadline::in(at_most).poll_ms();
  lock.unlock();
  const int ready = ::poll(polled_.data(), polled_.size(), timeout);
  lock.lock();
  if (ready <= 0) polled_.clear();
}

void TcpEndpoint::after_sleep() {
  if (polled_.empty()) return;
  if (polled_[0].revents != 0) {
    std::uint64_t count = 0;
    [[maybe_unused]] const auto taken = ::read(interrupt_.get(), &count, sizeof count);
  }
  for (Rank peer = 0; peer < size_ && !failed(); ++peer)
    if (polled_[index_of(peer) + 1].revents != 0) progress_with(peer);
}

void TcpEndpoint::interrupt_sleep() {
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto written = ::write(interrupt_.get(), &one, sizeof one);
}

std::string TcpEndpoint::census() {
  std::string text = fmt::format("Messages that rank {} has", rank_);
  for (Rank peer = 0; peer < size_; ++peer)
    if (peer != rank_)
      text +=
          fmt::format(" sent to and received from rank {}: {} and {};", peer, sent_to(peer), mailbox(peer).received());
  text.back() = '.';
  return text;
}

}  // namespace lockstep::transport::tcp
