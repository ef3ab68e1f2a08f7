#include "lockstep/measure/socket_limit.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include "lockstep/base/clock.h"
#include "lockstep/base/quantile.h"
#include "lockstep/error.h"
#include "lockstep/rendezvous/meeting.h"
#include "lockstep/rendezvous/socket.h"
#include "lockstep/transport/patience.h"
#include "lockstep/transport/reception.h"
#include "lockstep/world.h"

namespace lockstep::measure {
namespace {

// Bytes of a system call. With smaller ones the rate is a third lower.
constexpr std::size_t kCall = std::size_t{1} << 20;
// Two ways are tried, and the faster one counts. One moves all bytes at once. The other uses half of the memory twice,
// in turns of this many bytes each way, so that what is in the socket's buffers stays in the cache.
constexpr std::size_t kTurn = std::size_t{256} << 10;
constexpr int kSpins = 1000;  // rounds that move nothing, before the rank sleeps
constexpr int kPauses = 16;
constexpr auto kPatience = 30s;
constexpr double kTryTime = 100e-3;

// How many bytes one system call moved; 0 if it would block.
std::size_t moved(ssize_t result) {
  if (result > 0) return static_cast<std::size_t>(result);
  if (result < 0 && (errno == EAGAIN || errno == EINTR)) return 0;
  throw SystemError(result == 0 ? ECONNRESET : errno, "the socket exchange for the limit failed");
}

}  // namespace

SocketLimit::SocketLimit(World& world, int cores)
    : world_(world),
      workers_(std::max(2, std::min(world.size(), cores) / 2 * 2)),
      spins_(workers_ <= cores ? kSpins : 0) {
  if (world.size() == 1) problem_ = "a world of one sends nothing";
  if (!world.meeting().all_on_one_host()) problem_ = "the ranks are on several hosts";
  if (!problem_.empty()) return;
  auto& meeting = world.meeting();
  const Rank me = world.rank();
  const bool works = me < workers_;
  rendezvous::Listener door;
  if (works && me % 2 == 0) door = rendezvous::listen_on({"127.0.0.1", 0, ""});
  const auto doors = meeting.exchange("bench/socket/door", door.fd ? door.address.text() : "");
  if (door.fd)
    transport::receive_peers(door, meeting, {me + 1}, [&](Rank, Fd fd) { connection_ = std::move(fd); });
  else if (works)
    connection_ = transport::call_on_peer(
        me - 1, rendezvous::Address::parse("a door", doors[static_cast<std::size_t>(me) - 1]), meeting);
  if (connection_) rendezvous::tune_for_data(connection_, kPatience);
}

void SocketLimit::move(ConstBytes out, Bytes in) {
  const int fd = connection_.get();
  for (int idle = 0; !out.empty() || !in.empty();) {
    const std::size_t received = in.empty() ? 0 : moved(::recv(fd, in.data(), std::min(in.size(), kCall), 0));
    const std::size_t sent = out.empty() ? 0 : moved(::send(fd, out.data(), std::min(out.size(), kCall), MSG_NOSIGNAL));
    in = in.subspan(received);
    out = out.subspan(sent);
    idle = received + sent > 0 ? 0 : idle + 1;
    // Trying without a pause would hold the socket's lock, which the arriving bytes need.
    for (int pause = 0; idle > 0 && pause < kPauses; ++pause) transport::cpu_pause();
    if (idle <= spins_) continue;
    pollfd wait{fd, static_cast<short>((in.empty() ? 0 : POLLIN) | (out.empty() ? 0 : POLLOUT)), 0};
    if (::poll(&wait, 1, Deadline::in(kPatience).poll_ms()) == 0)
      throw TimedOut("nothing moved in the socket exchange for the limit");
    idle = 0;
  }
}

double SocketLimit::time_of(ConstBytes out, Bytes in, std::size_t turn, int sweeps) {
  const auto timed = [&] {
    const auto start = Clock::now();
    for (int sweep = 0; sweep < sweeps; ++sweep)
      for (std::size_t at = 0; at < out.size(); at += turn) {
        const std::size_t size = std::min(turn, out.size() - at);
        move(out.subspan(at, size), in.subspan(at, size));
      }
    return seconds_since(start);
  };
  timed();
  const double guess = std::min(timed(), timed());
  // The lower rank of a pair decides how often both measure.
  auto times = std::clamp<std::uint64_t>(static_cast<std::uint64_t>(kTryTime / guess), 5, 10000);
  if (world_.rank() % 2 == 0)
    move(bytes_of(times), {});
  else
    move({}, writable_bytes_of(times));
  std::vector<double> samples(times);
  for (double& sample : samples) sample = timed();
  return median(std::move(samples));
}

void SocketLimit::measure(std::size_t bytes) {
  if (!problem_.empty()) return;
  const std::string name = fmt::format("bench/socket/{}", tries_++);
  world_.meeting().barrier(name + "/begin");
  if (connection_) {
    memory_.resize(std::max(memory_.size(), 2 * bytes));
    const auto part = [&](std::size_t begin, std::size_t size) { return Bytes(memory_).subspan(begin, size); };
    const std::size_t half = bytes / 2;
    const double seconds = std::min(time_of(part(0, bytes), part(bytes, bytes), bytes, 1),
                                    time_of(part(0, half), part(half, half), kTurn, 2));
    best_[bytes] = std::max(best_[bytes], static_cast<double>(bytes) / seconds / 1e9);
  }
  world_.meeting().barrier(name + "/end");
}

std::optional<double> SocketLimit::at(std::size_t bytes) const {
  const auto found = best_.find(bytes);
  return found == best_.end() ? std::nullopt : std::optional(found->second);
}

}  // namespace lockstep::measure
