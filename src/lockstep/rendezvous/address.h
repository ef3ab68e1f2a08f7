// The address where something listens: an IPv4 or IPv6 address with a port, or a Unix socket.
//
//   127.0.0.1:29500   [::1]:29500   localhost:0   unix:/run/user/1000/job.sock   unix:@abstract-name
//
// Port 0 asks the kernel for a free port. An abstract Unix name leaves no file behind.
#pragma once

#include <string>
#include <string_view>

namespace lockstep::rendezvous {

struct Address {
  std::string host;  // empty for a Unix socket
  int port = 0;
  std::string path;  // the path of a Unix socket; an abstract name begins with '@'

  // Throws a UsageError that names `what` (a flag or a variable) and shows the forms above.
  static Address parse(std::string_view what, std::string_view text);
  static Address unix_socket(std::string path) { return {"", 0, std::move(path)}; }

  bool is_unix() const { return !path.empty(); }
  // True if no traffic leaves the host; that includes Unix sockets. It says nothing about who may connect: every user
  // of the host can connect to a loopback port.
  bool is_loopback() const;
  std::string text() const;
};

}  // namespace lockstep::rendezvous
