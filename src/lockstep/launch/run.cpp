#include "lockstep/launch/run.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>

#include "lockstep/base/cpu.h"
#include "lockstep/base/environment.h"
#include "lockstep/base/log.h"
#include "lockstep/error.h"
#include "lockstep/launch/descendants.h"
#include "lockstep/launch/output.h"
#include "lockstep/launch/program.h"
#include "lockstep/launch/rank_environment.h"
#include "lockstep/launch/rank_process.h"
#include "lockstep/launch/signals.h"
#include "lockstep/launch/supervisor.h"
#include "lockstep/launch/watchdog.h"
#include "lockstep/rendezvous/handshake.h"
#include "lockstep/rendezvous/socket.h"
#include "lockstep/rendezvous/store_server.h"

namespace lockstep::launch {
namespace {

// Listens on the master's address, which proves that the program can do so. Port 0 takes a free one.
rendezvous::Listener try_master(const std::string& host, int port) {
  try {
    return rendezvous::listen_on({host, port, ""});
  } catch (const SystemError& error) {
    switch (error.code()) {
      case EADDRINUSE:
        throw UsageError(fmt::format("port {} on {} is in use", port, host),
                         "another `master_port`, or none for a free one");
      case EACCES:
        throw UsageError(fmt::format("this user may not listen on port {} of {}", port, host),
                         "a `master_port` above 1023");
      case EADDRNOTAVAIL:
        throw UsageError(fmt::format("`master_addr` {} is not an address of this host", host),
                         "`master_addr` 127.0.0.1");
      default:
        throw;
    }
  }
}

std::vector<std::string> own_environment() {
  std::vector<std::string> variables;
  for (char** variable = environ; *variable != nullptr; ++variable) variables.emplace_back(*variable);
  return variables;
}

}  // namespace

int run(const Options& asked) {
  Options options = asked;
  options.stopped_patience = env_seconds("LOCKSTEP_TIMEOUT", options.stopped_patience);
  const std::string path = find_program(options.command.at(0), env("PATH").value_or("/usr/local/bin:/usr/bin:/bin"));
  rendezvous::Listener master = try_master(options.master_addr, options.master_port);

  const SignalInbox signals;  // before any thread
  const Adoption adoption;
  Watchdog watchdog(options.ranks);
  Output output(options);
  const std::string secret = rendezvous::fresh_secret();
  rendezvous::StoreServer store({{"127.0.0.1", 0, ""}, secret, options.ranks, 0, false});

  // If the two addresses differ, the kernel may have chosen the same port on both.
  while (options.master_port == 0 && master.address.port == store.address().port)
    master = try_master(options.master_addr, 0);
  const JobFacts job{options.ranks,
                     options.master_addr,
                     master.address.port,
                     store.address().text(),
                     secret,
                     ::getpid(),
                     threads_per_rank(options.ranks)};
  log::debug("store on {}, MASTER_PORT {}, watchdog pid {}", job.store, job.master_port, watchdog.pid());
  master.fd.reset();  // from here on the port belongs to the program

  const auto inherited = own_environment();
  Supervisor supervisor(options, store, signals, watchdog, output);
  return supervisor.run([&](Rank rank, const std::function<bool()>& told_to_stop) {
    const bool inherit_stdin = rank == 0 && ::isatty(STDIN_FILENO) == 0;
    return start_rank({path, options.command, rank_environment(job, rank, inherited)}, inherit_stdin, told_to_stop);
  });
}

}  // namespace lockstep::launch
