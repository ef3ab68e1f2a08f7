#include "lockstep/launch/signals.h"

#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>

#include "lockstep/error.h"

namespace lockstep::launch {
namespace {

bool ignored(int signal) {
  struct sigaction action {};
  return ::sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

}  // namespace

SignalInbox::SignalInbox() {
  sigset_t wanted;
  sigemptyset(&wanted);
  for (const int signal : {SIGCHLD, SIGTERM, SIGTSTP, SIGCONT, SIGUSR1, SIGUSR2}) sigaddset(&wanted, signal);
  for (const int signal : {SIGINT, SIGQUIT, SIGHUP})
    if (!ignored(signal)) sigaddset(&wanted, signal);
  fd_ = Fd(::signalfd(-1, &wanted, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!fd_) throw SystemError(errno, "cannot make a signalfd", "a higher `ulimit -n`");

  struct sigaction action {};
  action.sa_handler = SIG_IGN;
  ::sigaction(SIGPIPE, &action, &pipe_before_);
  action.sa_handler = SIG_DFL;  // if it were ignored, children would not report how they ended
  ::sigaction(SIGCHLD, &action, &child_before_);
  ::pthread_sigmask(SIG_BLOCK, &wanted, &mask_before_);
}

SignalInbox::~SignalInbox() {
  ::sigaction(SIGPIPE, &pipe_before_, nullptr);
  ::sigaction(SIGCHLD, &child_before_, nullptr);
  ::pthread_sigmask(SIG_SETMASK, &mask_before_, nullptr);
}

std::optional<int> SignalInbox::next() const {
  signalfd_siginfo info{};
  if (::read(fd_.get(), &info, sizeof info) != sizeof info) return std::nullopt;
  return static_cast<int>(info.ssi_signo);
}

}  // namespace lockstep::launch
