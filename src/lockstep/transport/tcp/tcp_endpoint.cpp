#include "lockstep/transport/tcp/tcp_endpoint.h"

#include <fmt/format.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>

#include "lockstep/base/cpu.h"
#include "lockstep/base/error.h"
#include "lockstep/base/log.h"

namespace lockstep::transport::tcp {
namespace {

// A look at a socket costs a system call, some 300 ns, and to sleep and be woken some 40 us on a virtual machine. So it
// pays to look for about twice that long.
WaitPolicy policy_for(int local_ranks) {
  return local_ranks <= allowed_cores() ? WaitPolicy{1, 300, 0} : WaitPolicy{1, 0, 0};
}

}  // namespace

TcpEndpoint::TcpEndpoint(const rendezvous::Meeting& meeting, std::vector<Fd> sockets, const Options& options,
                         const Surroundings& surroundings)
    : Endpoint(meeting.me().rank, meeting.me().size, options.timeout,
               policy_for(static_cast<int>(meeting.ranks_on_my_host().size())), surroundings),
      interrupt_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (!interrupt_) throw SystemError(errno, "cannot make an eventfd");
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
        [this, peer](const std::string& why) {
          log::debug("rank {}: connection to rank {} lost: {}", rank_, peer, why);
          peer_died(peer);
        },
    };
    connections_.push_back(std::make_unique<Connection>(std::move(sockets[index(peer)]), options.segment_bytes,
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
  Connection& connection = *connections_[index(operation.peer)];
  const bool idle = sends(operation.peer).empty();
  sends(operation.peer).push_back(&operation);
  if (idle) connection.write_some();
  if (operation.pending()) notify();  // whoever sleeps must now look for room to write, too
}

bool TcpEndpoint::forget_send(Operation& operation) { return connections_[index(operation.peer)]->forget(operation); }

bool TcpEndpoint::progress_with(Rank peer) {
  Connection& connection = *connections_[index(peer)];
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
    if (polled_[index(peer) + 1].revents != 0) progress_with(peer);
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
