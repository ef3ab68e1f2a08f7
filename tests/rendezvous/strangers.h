// Strangers for tests: connections to a listener that come from nobody's rank, opened and dropped in every way.
#pragma once

#include <sys/socket.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/base/clock.h"
#include "lockstep/error.h"
#include "lockstep/rendezvous/socket.h"

namespace lockstep::rendezvous {

enum class Manner { close, reset, silent, garbage, half_greeting };
constexpr Manner kEveryManner[] = {Manner::close, Manner::reset, Manner::silent, Manner::garbage,
                                   Manner::half_greeting};

inline void make_reset_on_close(const Fd& fd) {
  const linger now{1, 0};
  ::setsockopt(fd.get(), SOL_SOCKET, SO_LINGER, &now, sizeof now);
}

// One connection. What stays open is added to `open`.
inline void come_as_stranger(const Address& address, Manner manner, std::vector<Fd>& open) {
  Fd fd = connect_to(address, Deadline::in(2s));
  const std::string garbage(200, 'x');
  if (manner == Manner::reset) make_reset_on_close(fd);
  if (manner == Manner::garbage) ::send(fd.get(), garbage.data(), garbage.size(), MSG_NOSIGNAL);
  if (manner == Manner::half_greeting) ::send(fd.get(), "LOCKSTP1half", 12, MSG_NOSIGNAL);
  if (manner != Manner::close && manner != Manner::reset) open.push_back(std::move(fd));
}

// A thread that floods an address in every manner until it is destroyed, or `most` connections were made. Keeps at most
// 300 of them open.
class Flood {
 public:
  explicit Flood(const Address& address, int most = 20'000) : thread_([this, address, most] { run(address, most); }) {}
  ~Flood() {
    stop_ = true;
    thread_.join();
  }
  int made() const { return made_; }
  // Whether this many connections are made within five seconds.
  bool makes(int number) const {
    const Deadline deadline = Deadline::in(5s);
    while (made_ < number && !deadline.passed()) std::this_thread::sleep_for(1ms);
    return made_ >= number;
  }

 private:
  void run(const Address& address, int most) {
    std::vector<Fd> open;
    while (!stop_ && made_ < most) {
      try {
        come_as_stranger(address, kEveryManner[made_ % 5], open);
      } catch (const Error&) {
        return;  // the listener has gone
      }
      ++made_;
      if (open.size() > 300) open.erase(open.begin(), open.begin() + 100);
    }
  }
  std::atomic<bool> stop_{false};
  std::atomic<int> made_{0};
  std::thread thread_;
};

}  // namespace lockstep::rendezvous
