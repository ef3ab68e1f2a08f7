// A client as the store's server sees it. Only the server's two files include this.
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "lockstep/rendezvous/store_server.h"

namespace lockstep::rendezvous {

// One client. Bytes pile up in `in` until a whole introduction or request is there.
struct StoreServer::Connection {
  Connection(Fd socket, Duration handshake_timeout)
      : fd(std::move(socket)),
        name(describe_peer(fd)),
        greeting(greet()),
        handshake_by(Deadline::in(handshake_timeout)) {}

  Fd fd;
  std::string name;
  Greeting greeting;
  Deadline handshake_by;
  bool known = false;
  bool dead = false;
  Claim claim{};
  std::string in;
  std::string out;
  // A wait under way: the client sends nothing more until it is answered.
  std::optional<std::string> awaited;
  Deadline wait_by = Deadline::in(0s);
};

}  // namespace lockstep::rendezvous
