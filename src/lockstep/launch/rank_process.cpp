#include "lockstep/launch/rank_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "lockstep/error.h"

namespace lockstep::launch {
namespace {

struct Pipe {
  Fd read;
  Fd write;
};

Pipe new_pipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) throw SystemError(errno, "cannot make a pipe for a rank", "a higher `ulimit -n`");
  return {Fd(ends[0]), Fd(ends[1])};
}

std::vector<char*> pointers_to(const std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  pointers.reserve(texts.size() + 1);
  for (const std::string& text : texts) pointers.push_back(const_cast<char*>(text.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

// What the child needs. It is made before the fork: the launcher has threads, so the child may only make system calls
// between fork and exec.
struct Child {
  const char* path;
  char* const* arguments;
  char* const* environment;
  int in;
  int out;
  int err;
  int complaints;  // a close-on-exec pipe that carries errno if something fails
  pid_t launcher;
};

void forget_signals() {
  struct sigaction by_default {};
  by_default.sa_handler = SIG_DFL;
  for (int signal = 1; signal < NSIG; ++signal) ::sigaction(signal, &by_default, nullptr);
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
}

[[noreturn]] void become_rank(const Child& child) {
  const bool ready = ::setpgid(0, 0) == 0 && ::prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 &&
                     ::dup2(child.in, STDIN_FILENO) >= 0 && ::dup2(child.out, STDOUT_FILENO) >= 0 &&
                     ::dup2(child.err, STDERR_FILENO) >= 0;
  int error = errno;
  if (::getppid() != child.launcher) ::_exit(1);  // the launcher died before prctl() took effect
  if (ready) {
    forget_signals();
    ::execve(child.path, child.arguments, child.environment);
    error = errno;
  }
  [[maybe_unused]] const auto written = ::write(child.complaints, &error, sizeof error);
  ::_exit(127);
}

// Waits until the child has executed the program. Returns 0, or the errno of what failed, or -1 if we were told to stop
// first. A child can be held for a long time between fork and exec, by a file system that does not answer or by a
// debugger.
int failure_to_execute(const Fd& complaints, const std::function<bool()>& told_to_stop) {
  constexpr int kLookEveryMs = 50;
  int error = 0;
  for (;;) {
    pollfd entry{complaints.get(), POLLIN, 0};
    const int ready = ::poll(&entry, 1, kLookEveryMs);
    if (ready == 0 && told_to_stop()) return -1;
    if (ready <= 0) continue;
    if (::read(complaints.get(), &error, sizeof error) >= 0 || errno != EINTR) return error;
  }
}

[[noreturn]] void throw_not_executed(const std::string& path, int error) {
  const std::string message = fmt::format("cannot execute '{}': {}", path, std::generic_category().message(error));
  std::string hint = "to run it without lockstep";
  if (error == ENOEXEC) hint = fmt::format("sh {}, or a first line such as #!/bin/sh", path);
  if (error == ENOENT) hint = "to install the interpreter that its first line names";
  if (error == E2BIG) hint = "fewer arguments, or a smaller environment";
  throw UsageError(message, hint);
}

}  // namespace

std::optional<RankProcess> start_rank(const Program& program, bool inherit_stdin,
                                      const std::function<bool()>& told_to_stop) {
  Pipe out = new_pipe();
  Pipe err = new_pipe();
  Pipe complaints = new_pipe();
  const Fd nothing(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (!nothing) throw SystemError(errno, "cannot open /dev/null", "a higher `ulimit -n`");
  const auto arguments = pointers_to(program.arguments);
  const auto environment = pointers_to(program.environment);
  const Child child{
      program.path.c_str(), arguments.data(), environment.data(),     inherit_stdin ? STDIN_FILENO : nothing.get(),
      out.write.get(),      err.write.get(),  complaints.write.get(), ::getpid()};
  const pid_t pid = ::fork();
  if (pid < 0) throw SystemError(errno, "cannot start another process", "fewer ranks, or a higher `ulimit -u`");
  if (pid == 0) become_rank(child);
  ::setpgid(pid, pid);  // the child does the same, so that it is done before either of them goes on
  complaints.write.reset();
  if (const int error = failure_to_execute(complaints.read, told_to_stop); error != 0) {
    if (error < 0) ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
    if (error < 0) return std::nullopt;
    throw_not_executed(program.path, error);
  }
  return RankProcess{pid, std::move(out.read), std::move(err.read)};
}

}  // namespace lockstep::launch
