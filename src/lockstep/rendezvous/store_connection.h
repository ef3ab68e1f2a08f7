// A client as the store's server sees it. Only store_server.cpp and store_requests.cpp include this file.
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "lockstep/base/clock.h"
#include "lockstep/rendezvous/store_server.h"

namespace lockstep::rendezvous {

// One client. Bytes are collected in `in` until an introduction or a request is complete.
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
  // The key that the client waits for, if any. The client sends nothing more until it is answered.
  std::optional<std::string> awaited;
  Deadline wait_by = Deadline::in(0s);
};

}  // namespace lockstep::rendezvous
