#include "lockstep/measure/worlds.h"

#include <fmt/format.h>

#include <algorithm>

#include "lockstep/base/clock.h"
#include "lockstep/base/environment.h"
#include "lockstep/base/log.h"
#include "lockstep/error.h"
#include "lockstep/rendezvous/handshake.h"
#include "lockstep/rendezvous/meeting.h"
#include "lockstep/world.h"

namespace lockstep::measure {
namespace {

using rendezvous::Address;
using rendezvous::Meeting;
using rendezvous::StoreServer;

}  // namespace

Worlds::Worlds(World& first, const std::vector<TransportKind>& transports) : first_(first) {
  Entry& entry = entries_.emplace_back();
  entry.comm = std::make_unique<Communicator>(first);
  entry.transport = entry.comm->transport_kind();
  if (first.size() == 1) return;
  for (std::size_t i = 1; i < transports.size(); ++i) {
    Entry next = another(transports[i], i);
    const bool known = std::any_of(entries_.begin(), entries_.end(),
                                   [&](const Entry& other) { return other.transport == next.transport; });
    if (!known) entries_.push_back(std::move(next));  // `auto` may be a transport that is already there
  }
}

Worlds::~Worlds() {
  try {
    if (std::uncaught_exceptions() == 0) first_.meeting().barrier("bench/end");  // rank 0 serves the stores until then
  } catch (const Error& error) {
    log::debug("at the end of the bench: {}", error.what());
  }
}

// A job's store accepts each rank only once. So the ranks of a further world meet in a store of their own. Rank 0
// serves it, and its address and secret go through the existing meeting.
Worlds::Entry Worlds::another(TransportKind transport, std::size_t number) {
  Meeting& met = first_.meeting();
  Entry entry;
  rendezvous::Place place;
  if (met.me().rank == 0) {
    const std::string secret = rendezvous::fresh_secret();
    const Address address = met.all_on_one_host() ? Address::unix_socket("@lockstep-bench-" + secret.substr(0, 32))
                                                  : Address{met.my_address_towards_store(), 0, ""};
    place.secret = rendezvous::fresh_secret();
    entry.store = std::make_unique<StoreServer>(StoreServer::Options{address, place.secret, met.me().size});
    place.address = entry.store->address();
  }
  const std::string text = met.exchange(fmt::format("bench/store/{}", number), place.secret + place.address.text())[0];
  const std::size_t length = rendezvous::fresh_secret().size();
  place.secret = text.substr(0, length);
  place.address = Address::parse("the bench's store", text.substr(length));

  transport::Options options = transport::Options::from_environment();
  options.kind = transport;
  entry.world = std::make_unique<World>(
      std::make_unique<Meeting>(met.me(), place, env_seconds("LOCKSTEP_RENDEZVOUS_TIMEOUT", 300s)), options);
  entry.comm = std::make_unique<Communicator>(*entry.world);
  entry.transport = entry.comm->transport_kind();
  return entry;
}

}  // namespace lockstep::measure
