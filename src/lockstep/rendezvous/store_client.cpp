#include <fmt/format.h>
#include <netdb.h>
#include <sys/socket.h>

#include <thread>

#include "lockstep/base/clock.h"
#include "lockstep/error.h"
#include "lockstep/rendezvous/dial.h"
#include "lockstep/rendezvous/socket.h"
#include "lockstep/rendezvous/store.h"

namespace lockstep::rendezvous {
StoreClient::StoreClient(const Address& address, const std::string& secret, const Claim& claim,
                         const Deadline& deadline, bool check_uid)
    : address_(address),
      connection_(dial(address, {secret, claim, check_uid, "LOCKSTEP_JOB=some-other-name on every rank"}, deadline)) {
  tune_for_data(connection_, 30s);
}

StoreClient::Result StoreClient::call(wire::Op op, const std::string& key, const std::string& value,
                                      std::int64_t number, const Deadline& deadline, std::uint32_t count) {
  if (key.empty() || key.size() > wire::kMaxKey || value.size() > wire::kMaxValue)
    throw UsageError(fmt::format("the store takes keys of 1 to {} and values up to {} bytes, not {} and {}",
                                 wire::kMaxKey, wire::kMaxValue, key.size(), value.size()));
  const wire::Request header{op, static_cast<std::uint32_t>(key.size()), static_cast<std::uint32_t>(value.size()),
                             count, number};
  std::string frame(reinterpret_cast<const char*>(&header), sizeof header);
  frame += key;
  frame += value;
  // Not a timed mutex: the thread sanitizer of g++ 12 does not know the call that locks one.
  std::unique_lock lock(mutex_, std::defer_lock);
  while (!lock.try_lock()) {
    if (deadline.passed())
      throw TimedOut(fmt::format("another thread was waiting for the store on {} for {:.3g} s", address_.text(),
                                 deadline.seconds()));
    std::this_thread::sleep_for(1ms);
  }
  if (!connection_) throw Error(fmt::format("the connection to the store on {} was lost before", address_.text()));
  try {
    Result result{};
    write_all(connection_, std::as_bytes(std::span(frame)), deadline);
    read_exact(connection_, writable_bytes_of(result.reply), deadline);
    if (result.reply.value_bytes > wire::kMaxValue) throw Error("the store sent a reply that is too long");
    result.value.resize(result.reply.value_bytes);
    read_exact(connection_, std::as_writable_bytes(std::span(result.value)), deadline);
    return result;
  } catch (const Error&) {
    connection_.reset();  // a reply may still arrive, so this connection cannot be used again
    throw;
  }
}

void StoreClient::set(const std::string& key, const std::string& value, const Deadline& deadline) {
  if (call(wire::Op::set, key, value, 0, deadline).reply.status != wire::Status::ok)
    throw Error(fmt::format("the store refused to set '{}': it is full", key));
}

std::optional<std::string> StoreClient::get(const std::string& key, const Deadline& deadline) {
  auto result = call(wire::Op::get, key, "", 0, deadline);
  if (result.reply.status != wire::Status::ok) return std::nullopt;
  return std::move(result.value);
}

namespace {

// The server answers by the deadline. Its answer gets two seconds more to arrive on a busy host.
Deadline with_travel(const Deadline& deadline) { return Deadline::in(deadline.left() + 2s); }

}  // namespace

bool StoreClient::barrier(const std::string& key, int count, const Deadline& deadline) {
  const auto result =
      call(wire::Op::barrier, key, "", deadline.poll_ms(), with_travel(deadline), static_cast<std::uint32_t>(count));
  return result.reply.status == wire::Status::ok;
}

std::optional<std::string> StoreClient::wait(const std::string& key, const Deadline& deadline) {
  auto result = call(wire::Op::wait, key, "", deadline.poll_ms(), with_travel(deadline));
  if (result.reply.status != wire::Status::ok) return std::nullopt;
  return std::move(result.value);
}

std::int64_t StoreClient::add(const std::string& key, std::int64_t amount, const Deadline& deadline) {
  const auto result = call(wire::Op::add, key, "", amount, deadline);
  if (result.reply.status != wire::Status::ok) throw Error(fmt::format("the store refused to add to '{}'", key));
  return result.reply.number;
}

std::string StoreClient::compare(const std::string& key, const std::string& value, int count,
                                 const Deadline& deadline) {
  auto result = call(wire::Op::compare, key, value, 0, deadline, static_cast<std::uint32_t>(count));
  if (result.reply.status != wire::Status::ok) throw Error(fmt::format("the store refused to compare '{}'", key));
  return std::move(result.value);
}

std::string StoreClient::local_host() const {
  sockaddr_storage storage{};
  socklen_t length = sizeof storage;
  char host[NI_MAXHOST];
  if (::getsockname(connection_.get(), reinterpret_cast<sockaddr*>(&storage), &length) != 0 ||
      ::getnameinfo(reinterpret_cast<sockaddr*>(&storage), length, host, sizeof host, nullptr, 0, NI_NUMERICHOST) != 0)
    throw Error("cannot tell which of this host's addresses leads to the store", "LOCKSTEP_TCP_ADDRESS=address:0");
  return host;
}

}  // namespace lockstep::rendezvous
