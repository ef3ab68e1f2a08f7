#include "lockstep/transport/connect.h"

#include <fmt/format.h>

#include <bit>

#include "lockstep/base/clock.h"
#include "lockstep/base/environment.h"
#include "lockstep/base/log.h"
#include "lockstep/error.h"
#include "lockstep/transport/shm/shm_endpoint.h"
#include "lockstep/transport/tcp/tcp_endpoint.h"

namespace lockstep::transport {

Options Options::from_environment() {
  Options options;
  options.kind = parse_transport(env_choice("LOCKSTEP_TRANSPORT", kTransports.names()));
  options.timeout = env_seconds("LOCKSTEP_TIMEOUT", options.timeout);
  options.tcp_address = env("LOCKSTEP_TCP_ADDRESS").value_or("");
  options.shm_copy = kShmCopies.parse(env_choice("LOCKSTEP_SHM_COPY", kShmCopies.names()));
  options.shm_dir = env("LOCKSTEP_SHM_DIR").value_or("");
  return options;
}

namespace {

std::unique_ptr<Transport> connect_with(rendezvous::Meeting& meeting, const Options& options,
                                        const EndpointCallbacks& callbacks) {
  const bool one_host = meeting.all_on_one_host();
  if (options.kind == TransportKind::shm && !one_host)
    throw UsageError("LOCKSTEP_TRANSPORT=shm, but the ranks are on several hosts", "LOCKSTEP_TRANSPORT=tcp");
  if (options.kind == TransportKind::tcp || !one_host) return tcp::connect(meeting, options, callbacks);
  try {
    return shm::connect(meeting, options, callbacks);
  } catch (const shm::Unavailable& unavailable) {
    if (options.kind == TransportKind::shm) {
      meeting.report(unavailable.culprit() == meeting.me().rank ? "error" : "waiting", unavailable.what());
      throw;
    }
    if (meeting.me().rank == 0)
      log::warn("falling back to tcp, shared memory is not to be had: {}", unavailable.what());
    return tcp::connect(meeting, options, callbacks);
  }
}

}  // namespace

std::unique_ptr<Transport> connect(rendezvous::Meeting& meeting, const Options& options) {
  if (options.queue_bytes != 0 && (options.queue_bytes < 4096 || !std::has_single_bit(options.queue_bytes)))
    throw UsageError(
        fmt::format("a queue of {} is not a power of two from 4 KiB on", describe_bytes(options.queue_bytes)));
  const EndpointCallbacks callbacks{
      [&meeting](Rank rank) { return meeting.fate_of(rank, 200ms); },
      [&meeting](const std::string& what) { meeting.report("waiting", what); },
  };
  try {
    return connect_with(meeting, options, callbacks);
  } catch (const PeerDied& died) {
    meeting.report("waiting", died.what());
    throw;
  }
}

}  // namespace lockstep::transport
