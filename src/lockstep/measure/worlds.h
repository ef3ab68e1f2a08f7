// The worlds of one run: the same ranks, with one world for each transport.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "lockstep/communicator.h"
#include "lockstep/rendezvous/store_server.h"
#include "lockstep/world.h"

namespace lockstep::measure {

class Worlds {
 public:
  struct Entry {
    std::unique_ptr<rendezvous::StoreServer> store;  // on rank 0: the store in which the ranks of a further world meet
    std::unique_ptr<World> world;                    // null for the first world
    std::unique_ptr<Communicator> comm;              // declared after the world, because it uses it
    std::optional<TransportKind> transport;          // none in a world of one
  };

  // Collective. `first` uses transports[0], and must outlive this object.
  Worlds(World& first, const std::vector<TransportKind>& transports);
  ~Worlds();

  World& first() { return first_; }
  std::vector<Entry>& entries() { return entries_; }

 private:
  Entry another(TransportKind transport, std::size_t number);

  World& first_;
  std::vector<Entry> entries_;
};

}  // namespace lockstep::measure
