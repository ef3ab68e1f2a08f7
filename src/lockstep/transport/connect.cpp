#include "lockstep/transport/connect.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>

#include "lockstep/base/environment.h"
#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/base/suggest.h"
#include "lockstep/transport/shm/shm_endpoint.h"
#include "lockstep/transport/tcp/tcp_endpoint.h"

namespace lockstep {

namespace {

const std::array<std::string, 3> kTransports{"auto", "shm", "tcp"};  // in the order of the enumerators

}  // namespace

const char* name_of(TransportKind kind) { return kTransports.at(static_cast<std::size_t>(kind)).c_str(); }

TransportKind parse_transport(std::string_view text) {
  const auto found = std::find(kTransports.begin(), kTransports.end(), text);
  if (found == kTransports.end())
    throw UsageError(fmt::format("there is no transport '{}'", text),
                     closest(text, kTransports).value_or("one of auto, shm, tcp"));
  return static_cast<TransportKind>(found - kTransports.begin());
}

}  // namespace lockstep

namespace lockstep::transport {

Options Options::from_environment() {
  Options options;
  options.kind = parse_transport(env_choice("LOCKSTEP_TRANSPORT", {"auto", "shm", "tcp"}));
  options.timeout = env_seconds("LOCKSTEP_TIMEOUT", options.timeout);
  options.tcp_address = env("LOCKSTEP_TCP_ADDRESS").value_or("");
  options.shm_copy = env_choice("LOCKSTEP_SHM_COPY", {"auto", "queue"});
  options.shm_dir = env("LOCKSTEP_SHM_DIR").value_or("");
  return options;
}

namespace {

std::unique_ptr<Transport> connect_with(rendezvous::Meeting& meeting, const Options& options,
                                        const Surroundings& surroundings) {
  const bool one_host = meeting.all_on_one_host();
  if (options.kind == TransportKind::shm && !one_host)
    throw UsageError("LOCKSTEP_TRANSPORT=shm, but the ranks are on several hosts", "LOCKSTEP_TRANSPORT=tcp");
  if (options.kind == TransportKind::tcp || !one_host) return tcp::connect(meeting, options, surroundings);
  try {
    return shm::connect(meeting, options, surroundings);
  } catch (const shm::Unavailable& unavailable) {
    if (options.kind == TransportKind::shm) {
      meeting.report(unavailable.rank() == meeting.me().rank ? "error" : "waiting", unavailable.what());
      throw;
    }
    if (meeting.me().rank == 0)
      log::warn("falling back to tcp, shared memory is not to be had: {}", unavailable.what());
    return tcp::connect(meeting, options, surroundings);
  }
}

}  // namespace

std::unique_ptr<Transport> connect(rendezvous::Meeting& meeting, const Options& options) {
  if (options.queue_bytes != 0 && (options.queue_bytes < 4096 || !std::has_single_bit(options.queue_bytes)))
    throw UsageError(
        fmt::format("a queue of {} is not a power of two from 4 KiB on", describe_bytes(options.queue_bytes)));
  const Surroundings surroundings{
      [&meeting](Rank rank) { return meeting.fate_of(rank, 200ms); },
      [&meeting](const std::string& what) { meeting.report("waiting", what); },
  };
  try {
    return connect_with(meeting, options, surroundings);
  } catch (const PeerDied& died) {
    meeting.report("waiting", died.what());
    throw;
  }
}

}  // namespace lockstep::transport
