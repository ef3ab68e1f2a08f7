// Connects the ranks over sockets. Each rank listens on a port of its own and tells the others through the store. In
// each pair, the higher rank calls the lower one.
#include <arpa/inet.h>
#include <fmt/format.h>
#include <sys/socket.h>

#include <set>

#include "lockstep/base/log.h"
#include "lockstep/error.h"
#include "lockstep/rendezvous/handshake.h"
#include "lockstep/transport/reception.h"
#include "lockstep/transport/tcp/tcp_endpoint.h"

namespace lockstep::transport::tcp {
namespace {

using rendezvous::Address;
using rendezvous::Meeting;

Address where_to_listen(const Meeting& meeting, const Options& options) {
  if (options.tcp_address == "unix")
    return Address::unix_socket(fmt::format("@lockstep-data-{}", rendezvous::fresh_secret().substr(0, 32)));
  if (!options.tcp_address.empty()) return Address::parse("LOCKSTEP_TCP_ADDRESS", options.tcp_address);
  if (meeting.all_on_one_host()) return {"127.0.0.1", 0, ""};
  return {meeting.my_address_towards_store(), 0, ""};
}

void set_buffers(const Fd& fd, int bytes) {
  if (bytes <= 0) return;
  ::setsockopt(fd.get(), SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
  ::setsockopt(fd.get(), SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes);
}

}  // namespace

std::unique_ptr<Transport> connect(Meeting& meeting, const Options& options, const EndpointCallbacks& callbacks) {
  const Rank me = meeting.me().rank;
  const int size = meeting.me().size;
  const rendezvous::Listener door = rendezvous::listen_on(where_to_listen(meeting, options));
  log::debug("rank {}: tcp listens on {}", me, door.address.text());
  const auto doors = meeting.exchange("tcp/door", door.address.text());

  std::vector<Fd> sockets(static_cast<std::size_t>(size));
  const auto keep = [&](Rank peer, Fd fd) {
    rendezvous::tune_for_data(fd, options.timeout);
    set_buffers(fd, options.socket_buffer_bytes);
    sockets[index_of(peer)] = std::move(fd);
  };
  // Each rank calls the lower ranks before it answers the higher ones. That cannot deadlock. The kernel completes a
  // connection even if the listener has not accepted it yet. The handshake needs an answer, but rank 0 calls nobody and
  // answers all, rank 1 calls only rank 0 and then answers the rest, and so on.
  for (Rank peer = 0; peer < me; ++peer)
    keep(peer, call_on_peer(peer, Address::parse("a peer's address", doors[index_of(peer)]), meeting));
  std::set<Rank> callers;
  for (Rank peer = me + 1; peer < size; ++peer) callers.insert(peer);
  receive_peers(door, meeting, callers, keep);
  auto endpoint = std::make_unique<TcpEndpoint>(meeting, std::move(sockets), options, callbacks);
  meeting.barrier("tcp/up");
  return endpoint;
}

}  // namespace lockstep::transport::tcp
