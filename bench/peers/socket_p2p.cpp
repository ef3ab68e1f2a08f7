// Bare loopback TCP between two processes: what a transport over sockets can reach at best on this machine.
//
//   socket_p2p TEST BYTES...
//     latency, bandwidth   plain blocking write and read, there and back; one-way time = round trip / 2
//     exchange             both processes send and receive at once, over one connection
//     exchange2            the same with one connection for each direction
//
// An exchange is measured in three ways, with one JSON line each; the best of them is the limit.
//   poll      one thread, nonblocking calls, poll when neither direction moves
//   spin      the same, but tries again for about a millisecond before it polls
//   threads   a blocking send on one thread, a blocking receive on another
// Calls move up to 1 MB; with 64 KB a third of the rate is lost. Socket buffers stay as the kernel tunes them: with
// SO_SNDBUF and SO_RCVBUF of 1 to 4 MB nothing was gained above the noise, and with 512 KB `threads` lost a fifth.
//
// Every wait ends after kDeadline. The child is killed when the parent ends, however it ends.
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <future>
#include <system_error>
#include <thread>
#include <vector>

#include "../p2p_measure.h"

namespace {

using bench::Bytes;
using bench::Payload;
using std::chrono::seconds;

constexpr seconds kDeadline{10};
constexpr Bytes kCall = 1 << 20;
constexpr int kSpins = 1000;

// A blocking socket reports EAGAIN when SO_RCVTIMEO or SO_SNDTIMEO has passed.
[[noreturn]] void fail(const std::string& what) {
  if (errno == EAGAIN)
    throw std::runtime_error(what + ": nothing moved for " + std::to_string(kDeadline.count()) + " s");
  throw std::system_error(errno, std::generic_category(), what);
}

int must(int result, const char* what) { return result >= 0 ? result : (fail(what), -1); }

// The two ends of one loopback connection. The kernel completes a connect that waits in the backlog, so one process can
// hold both ends and share them with its child. There is no port to agree on and no accept to wait for.
std::array<int, 2> connection() {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(address);
  auto* raw = reinterpret_cast<sockaddr*>(&address);
  const int listener = must(socket(AF_INET, SOCK_STREAM, 0), "socket");
  must(bind(listener, raw, length), "bind");
  must(listen(listener, 1), "listen");
  must(getsockname(listener, raw, &length), "getsockname");
  const int first = must(socket(AF_INET, SOCK_STREAM, 0), "socket");
  must(connect(first, raw, length), "connect");
  const std::array<int, 2> ends{first, must(accept(listener, nullptr, nullptr), "accept")};
  close(listener);
  const int on = 1;
  const timeval limit{.tv_sec = kDeadline.count(), .tv_usec = 0};
  for (int fd : ends) {
    must(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)), "TCP_NODELAY");
    must(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)), "SO_RCVTIMEO");
    must(setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit)), "SO_SNDTIMEO");
  }
  return ends;
}

// The sockets that one process sends to and receives from. They are the same socket when both directions share a
// connection.
struct Link {
  int out, in;
};

// One call each, for at most kCall bytes. With MSG_DONTWAIT they return 0 if nothing can move.
Bytes send_some(int fd, Payload p, int flags) {
  const ssize_t n = send(fd, p.data(), std::min(p.size(), kCall), flags | MSG_NOSIGNAL);
  if (n >= 0) return static_cast<Bytes>(n);
  if (errno == EINTR || ((flags & MSG_DONTWAIT) && errno == EAGAIN)) return 0;
  fail("send");
}

Bytes receive_some(int fd, Payload p, int flags) {
  const ssize_t n = recv(fd, p.data(), std::min(p.size(), kCall), flags);
  if (n > 0) return static_cast<Bytes>(n);
  if (n == 0) throw std::runtime_error("receive: the other process closed the connection");
  if (errno == EINTR || ((flags & MSG_DONTWAIT) && errno == EAGAIN)) return 0;
  fail("receive");
}

void send_all(int fd, Payload p) {
  while (!p.empty()) p = p.subspan(send_some(fd, p, 0));
}

void receive_all(int fd, Payload p) {
  while (!p.empty()) p = p.subspan(receive_some(fd, p, 0));
}

// Up to `spins` rounds in a row may move nothing before the thread sleeps in poll.
void exchange_polling(Link link, Payload out, Payload in, int spins) {
  for (int idle = 0; !out.empty() || !in.empty();) {
    const Bytes received = in.empty() ? 0 : receive_some(link.in, in, MSG_DONTWAIT);
    const Bytes sent = out.empty() ? 0 : send_some(link.out, out, MSG_DONTWAIT);
    in = in.subspan(received);
    out = out.subspan(sent);
    idle = received + sent > 0 ? 0 : idle + 1;
    if (idle <= spins) continue;
    std::array<pollfd, 2> wait{{{link.in, static_cast<short>(in.empty() ? 0 : POLLIN), 0},
                                {link.out, static_cast<short>(out.empty() ? 0 : POLLOUT), 0}}};
    const int ready = poll(wait.data(), wait.size(), static_cast<int>(kDeadline.count() * 1000));
    if (ready == 0) errno = EAGAIN;  // as a blocking call reports its deadline
    if (ready == 0 || (ready < 0 && errno != EINTR)) fail("exchange");
    idle = 0;
  }
}

void exchange_threads(Link link, Payload out, Payload in) {
  auto sender = std::async(std::launch::async, [=] { send_all(link.out, out); });
  receive_all(link.in, in);
  sender.get();
}

void run_rank(int rank, Link link, const std::string& test, Bytes bytes) {
  auto agree = [&](std::uint64_t value) {
    const Payload raw(reinterpret_cast<std::byte*>(&value), sizeof(value));
    rank == 0 ? send_all(link.out, raw) : receive_all(link.in, raw);
    return value;
  };
  auto report = [&](double time, const char* variant) {
    if (rank == 0) bench::print_result("socket", test, 2, bytes, time, variant);
  };
  std::vector<std::byte> out(bytes), in(bytes);
  if (test == "latency" || test == "bandwidth") {
    auto send = [&](Payload p) { send_all(link.out, p); };
    auto receive = [&](Payload p) { receive_all(link.in, p); };
    report(bench::seconds_per_hop(rank, 2, out, send, receive, agree), "");
    return;
  }
  auto timed = [&](auto exchange) { return bench::seconds_per_exchange(rank, out, in, exchange, agree); };
  report(timed([&](Payload o, Payload i) { exchange_polling(link, o, i, 0); }), "poll");
  report(timed([&](Payload o, Payload i) { exchange_polling(link, o, i, kSpins); }), "spin");
  report(timed([&](Payload o, Payload i) { exchange_threads(link, o, i); }), "threads");
}

// Runs work() in a child process. The kernel kills the child when this process dies, and the destructor kills it when
// this object is destroyed.
class Child {
 public:
  template <class Work>
  explicit Child(Work work) : parent_(getpid()), pid_(must(fork(), "fork")) {
    if (pid_ != 0) return;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent_) _exit(EXIT_FAILURE);  // the parent died before prctl
    _exit(work());
  }
  ~Child() {
    if (pid_ > 0) kill(pid_, SIGKILL), waitpid(pid_, nullptr, 0);
  }
  bool ended_well() {
    int status = 0;
    for (const auto end = std::chrono::steady_clock::now() + kDeadline; std::chrono::steady_clock::now() < end;) {
      if (waitpid(pid_, &status, WNOHANG) == pid_) return pid_ = 0, WIFEXITED(status) && WEXITSTATUS(status) == 0;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return false;
  }

 private:
  pid_t parent_, pid_;
};

}  // namespace

int main(int argc, char** argv) try {
  if (argc < 3) throw std::invalid_argument("usage: socket_p2p latency|bandwidth|exchange|exchange2 BYTES...");
  const std::string test = argv[1];
  if (test != "latency" && test != "bandwidth" && test != "exchange" && test != "exchange2") {
    throw std::invalid_argument("unknown test '" + test + "'");
  }
  std::vector<Bytes> sizes;
  for (const char* size : std::span(argv + 2, argv + argc)) sizes.push_back(bench::parse_bytes(size));

  const auto there = connection();
  const auto back = test == "exchange2" ? connection() : std::array{there[1], there[0]};
  const std::array<Link, 2> links{{{.out = there[0], .in = back[1]}, {.out = back[0], .in = there[1]}}};
  auto run = [&](int rank) {
    const Link other = links[1 - rank];  // closed here, so that each process notices the end of the other
    close(other.out);
    if (other.in != other.out) close(other.in);
    try {
      for (Bytes bytes : sizes) run_rank(rank, links[rank], test, bytes);
      return EXIT_SUCCESS;
    } catch (const std::exception& error) {
      std::fprintf(stderr, "socket_p2p: rank %d: %s\n", rank, error.what());
      return EXIT_FAILURE;
    }
  };
  Child child([&] { return run(1); });
  return run(0) == EXIT_SUCCESS && child.ended_well() ? EXIT_SUCCESS : EXIT_FAILURE;
} catch (const std::exception& error) {
  std::fprintf(stderr, "socket_p2p: %s\n", error.what());
  return EXIT_FAILURE;
}
