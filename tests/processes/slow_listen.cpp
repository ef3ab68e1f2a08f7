// Loaded in front of a rank (LD_PRELOAD): after listen() it sleeps for LOCKSTEP_TEST_LISTEN_DELAY milliseconds. The doors
// of ranks are otherwise open for some milliseconds only, and a test could not tell whether strangers came in time.
#include <dlfcn.h>

#include <chrono>
#include <cstdlib>
#include <thread>

extern "C" int listen(int fd, int backlog) {
  using Listen = int (*)(int, int);
  static const auto real = reinterpret_cast<Listen>(::dlsym(RTLD_NEXT, "listen"));
  const int result = real(fd, backlog);
  if (const char* delay = std::getenv("LOCKSTEP_TEST_LISTEN_DELAY"))
    std::this_thread::sleep_for(std::chrono::milliseconds(std::atoi(delay)));
  return result;
}
