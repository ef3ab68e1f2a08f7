// How the store handles the requests of a client that has introduced itself: set, get, wait, add, barrier, compare.
#include <algorithm>
#include <cstring>
#include <utility>

#include "lockstep/base/clock.h"
#include "lockstep/rendezvous/store_connection.h"

namespace lockstep::rendezvous {
namespace {

constexpr std::size_t kMaxKeys = 1 << 16;              // a job of 1,000 ranks uses some thousand keys
constexpr std::size_t kMaxOwed = 8 * wire::kMaxValue;  // bytes of replies that one client has not read

}  // namespace

// Handles every complete request in `in`. Returns false if the connection must be closed.
bool StoreServer::handle_frames(Connection& connection) {
  while (!connection.awaited && connection.in.size() >= sizeof(wire::Request)) {
    wire::Request request;
    std::memcpy(&request, connection.in.data(), sizeof request);
    if (request.key_bytes > wire::kMaxKey || request.value_bytes > wire::kMaxValue) {
      drop_stranger(connection, "sent a frame that is too long");
      return false;
    }
    const std::size_t total = sizeof request + request.key_bytes + request.value_bytes;
    if (connection.in.size() < total) return true;
    const std::string key = connection.in.substr(sizeof request, request.key_bytes);
    std::string value = connection.in.substr(sizeof request + request.key_bytes, request.value_bytes);
    connection.in.erase(0, total);
    handle(connection, request, key, std::move(value));
    if (connection.dead) return false;
  }
  // A client that waits sends nothing. Whoever sends more than one frame while it waits is not one of our clients.
  if (connection.in.size() > sizeof(wire::Request) + wire::kMaxKey + wire::kMaxValue) {
    drop_stranger(connection, "talks while it waits");
    return false;
  }
  return true;
}

void StoreServer::handle(Connection& connection, const wire::Request& request, const std::string& key,
                         std::string value) {
  const auto found = values_.find(key);
  const bool full = found == values_.end() && values_.size() >= kMaxKeys;
  if (key.empty()) return reply(connection, wire::Status::refused, "");
  switch (request.op) {
    case wire::Op::set:
      if (full) return reply(connection, wire::Status::refused, "");
      reply(connection, wire::Status::ok, "");
      return set_locked(key, std::move(value));
    case wire::Op::get:
      if (found == values_.end()) return reply(connection, wire::Status::absent, "");
      return reply(connection, wire::Status::ok, found->second);
    case wire::Op::wait:
      if (found != values_.end()) return reply(connection, wire::Status::ok, found->second);
      return wait_for(connection, key, request.number);
    case wire::Op::add:
      if (full) return reply(connection, wire::Status::refused, "");
      return reply(connection, wire::Status::ok, "", add_locked(key, request.number));
    case wire::Op::barrier:
      if (full) return reply(connection, wire::Status::refused, "");
      if (add_locked(key + "/arrived", 1) < request.count) return wait_for(connection, key + "/open", request.number);
      reply(connection, wire::Status::ok, "");
      return set_locked(key + "/open", "");
    case wire::Op::compare:
      if (comparisons_.size() >= kMaxKeys) return reply(connection, wire::Status::refused, "");
      return compare(connection, key, std::move(value), request.count);
  }
  drop_stranger(connection, "asked for something that the store does not do");
}

void StoreServer::compare(Connection& connection, const std::string& key, std::string value, std::uint32_t count) {
  Comparison& comparison = comparisons_.try_emplace(key, Comparison{std::move(value)}).first->second;
  reply(connection, wire::Status::ok, comparison.first);
  if (++comparison.came >= count) comparisons_.erase(key);
}

void StoreServer::wait_for(Connection& connection, const std::string& key, std::int64_t milliseconds) {
  connection.awaited = key;
  connection.wait_by = Deadline::in(std::chrono::milliseconds(std::clamp<std::int64_t>(milliseconds, 0, 1 << 30)));
}

std::int64_t StoreServer::add_locked(const std::string& key, std::int64_t amount) {
  std::int64_t sum = 0;
  const auto found = values_.find(key);
  if (found != values_.end() && found->second.size() == sizeof sum) std::memcpy(&sum, found->second.data(), sizeof sum);
  sum = static_cast<std::int64_t>(static_cast<std::uint64_t>(sum) + static_cast<std::uint64_t>(amount));
  set_locked(key, std::string(reinterpret_cast<const char*>(&sum), sizeof sum));
  return sum;
}

void StoreServer::set_locked(const std::string& key, std::string value) {
  const std::string& stored = values_[key] = std::move(value);
  for (auto& connection : connections_)
    if (!connection->dead && connection->awaited == key) {
      connection->awaited.reset();
      reply(*connection, wire::Status::ok, stored);
    }
}

void StoreServer::reply(Connection& connection, wire::Status status, std::string_view value, std::int64_t number) {
  const wire::Reply header{status, static_cast<std::uint32_t>(value.size()), number};
  connection.out.append(reinterpret_cast<const char*>(&header), sizeof header);
  connection.out.append(value);
  flush(connection);
  if (connection.out.size() > kMaxOwed) drop_stranger(connection, "asks but does not read the answers");
}

}  // namespace lockstep::rendezvous
