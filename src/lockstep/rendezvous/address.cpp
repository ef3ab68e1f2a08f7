#include "lockstep/rendezvous/address.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>

#include "lockstep/base/environment.h"
#include "lockstep/error.h"

namespace lockstep::rendezvous {
namespace {

constexpr std::size_t kMaxUnixPath = 107;  // sun_path has 108 bytes, including the final zero

}  // namespace

Address Address::parse(std::string_view what, std::string_view text) {
  const auto fail = [&](const char* why) {
    return UsageError(fmt::format("{} is '{}': {}", what, text, why), "127.0.0.1:29500, [::1]:29500 or unix:/path");
  };
  if (text.starts_with("unix:")) {
    const std::string_view path = text.substr(5);
    if (path.empty() || path == "@") throw fail("the socket's path is missing");
    if (path.size() > kMaxUnixPath) throw fail("the socket's path is longer than 107 bytes");
    return unix_socket(std::string(path));
  }
  if (text.starts_with("tcp://")) text.remove_prefix(6);
  const auto colon = text.rfind(':');
  if (colon == std::string_view::npos) throw fail("the port is missing");
  std::string_view host = text.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']'))
    host = host.substr(1, host.size() - 2);
  else if (host.find(':') != std::string_view::npos)
    throw fail("an IPv6 address stands in brackets");
  if (host.empty()) throw fail("the host is missing");
  Address address;
  address.host = host;
  address.port = static_cast<int>(parse_int(fmt::format("the port in {}", what), text.substr(colon + 1), 0, 65535));
  return address;
}

bool Address::is_loopback() const {
  if (is_unix() || host == "localhost") return true;
  in_addr v4{};
  if (::inet_pton(AF_INET, host.c_str(), &v4) == 1)
    return ntohl(v4.s_addr) >> 24 == 127;  // "127.example.com" is a name and not an address
  in6_addr v6{};
  return ::inet_pton(AF_INET6, host.c_str(), &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6);
}

std::string Address::text() const {
  if (is_unix()) return "unix:" + path;
  if (host.find(':') != std::string::npos) return fmt::format("[{}]:{}", host, port);
  return fmt::format("{}:{}", host, port);
}

}  // namespace lockstep::rendezvous
