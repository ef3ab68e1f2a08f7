#include "lockstep/transport/peer_process.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <map>
#include <mutex>
#include <utility>

#include "lockstep/base/clock.h"
#include "lockstep/error.h"

namespace lockstep::transport {
namespace {

constexpr auto kTrustFor = 10ms;

struct Known {
  std::mutex mutex;  // guards processes
  std::map<std::pair<int, std::uint64_t>, std::weak_ptr<const PeerProcess>> processes;
};
Known& known() {
  static Known instance;
  return instance;
}

}  // namespace

std::shared_ptr<const PeerProcess> PeerProcess::of(const rendezvous::Peer& peer) {
  const std::lock_guard lock(known().mutex);
  std::erase_if(known().processes, [](const auto& entry) { return entry.second.expired(); });
  auto& entry = known().processes[{peer.pid, peer.started}];
  auto process = entry.lock();
  if (!process) entry = process = std::make_shared<PeerProcess>(peer);
  return process;
}

PeerProcess::PeerProcess(const rendezvous::Peer& peer)
    : pid_(peer.pid), started_(peer.started), is_this_process_(peer.pid == ::getpid()) {
  if (is_this_process_) return;
  const auto fail = [&](int error) {
    throw SystemError(error, fmt::format("cannot watch the process of rank {} (pid {})", peer.rank, pid_),
                      "a higher `ulimit -n`");
  };
  alive_.reset(static_cast<int>(::syscall(SYS_pidfd_open, pid_, 0)));
  if (!alive_ && rendezvous::out_of_descriptors(errno)) fail(errno);
  try {
    // The start time is read after the pidfd was opened. So if it is right, the pidfd belongs to the right process.
    ended_before_ = rendezvous::process_start_time(pid_) != started_;
  } catch (const SystemError& error) {
    fail(error.code());
  }
}

bool PeerProcess::has_ended(std::chrono::milliseconds patience) const {
  if (is_this_process_) return false;
  if (ended_before_) return true;
  if (!alive_) return !rendezvous::process_is(pid_, started_);
  pollfd entry{alive_.get(), POLLIN, 0};
  return ::poll(&entry, 1, static_cast<int>(patience.count())) > 0;
}

bool PeerProcess::owns_pid() const {
  const auto now = std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now().time_since_epoch()).count();
  if (now - looked_at_.load(std::memory_order_relaxed) < std::chrono::nanoseconds(kTrustFor).count()) return true;
  if (has_ended(0ms)) return false;
  looked_at_.store(now, std::memory_order_relaxed);
  return true;
}

}  // namespace lockstep::transport
