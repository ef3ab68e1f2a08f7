// Loaded in front of a rank (LD_PRELOAD), so that its doors stay open for long enough to be attacked; otherwise it is
// some milliseconds, and a test could not tell whether strangers came in time.
//
//   LOCKSTEP_TEST_LISTEN_DELAY=500   sleep for 500 ms after listen(): strangers come before the ranks do
//   LOCKSTEP_TEST_ACCEPT_DELAY=500   sleep before the first accept() after each listen(): strangers come behind the
//   ranks
#include <dlfcn.h>
#include <sys/socket.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <thread>

namespace {

std::atomic<bool> fresh{false};  // nothing was accepted since the last listen()

void sleep_for(const char* variable) {
  if (const char* delay = std::getenv(variable))
    std::this_thread::sleep_for(std::chrono::milliseconds(std::atoi(delay)));
}

}  // namespace

extern "C" int listen(int fd, int backlog) {
  using Listen = int (*)(int, int);
  static const auto real = reinterpret_cast<Listen>(::dlsym(RTLD_NEXT, "listen"));
  const int result = real(fd, backlog);
  fresh = true;
  sleep_for("LOCKSTEP_TEST_LISTEN_DELAY");
  return result;
}

extern "C" int accept4(int fd, sockaddr* address, socklen_t* length, int flags) {
  using Accept = int (*)(int, sockaddr*, socklen_t*, int);
  static const auto real = reinterpret_cast<Accept>(::dlsym(RTLD_NEXT, "accept4"));
  if (fresh.exchange(false)) sleep_for("LOCKSTEP_TEST_ACCEPT_DELAY");
  return real(fd, address, length, flags);
}
