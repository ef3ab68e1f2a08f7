// The way of measuring that all programs of the point-to-point comparison share: how a size is read, how a payload is
// marked and checked, how many iterations are timed, and how a result line looks. Each program adds only its own way to
// move bytes.
//
//   one-way time   the time from the start of a send until the other side holds the bytes
//   hop            one one-way transfer from a rank to the next; a lap is p hops, from rank 0 back to rank 0
//   stamp          a byte at the front and at the back of the payload; it counts hops, so a stale payload shows
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <span>
#include <stdexcept>
#include <string>

namespace bench {

using Bytes = std::size_t;
using Payload = std::span<std::byte>;

// Parses "64", "4K", "16M": the suffixes mean 1024 and 1024 * 1024. Throws if the text is anything else, or zero.
inline Bytes parse_bytes(const std::string& text) {
  std::size_t end = 0;
  Bytes value = 0;
  try {
    value = std::stoull(text, &end);
  } catch (const std::exception&) {
    end = 0;
  }
  const std::string suffix = text.substr(end);
  if (suffix == "K") value <<= 10;
  if (suffix == "M") value <<= 20;
  if (end == 0 || text[0] == '-' || value == 0 || (!suffix.empty() && suffix != "K" && suffix != "M")) {
    throw std::invalid_argument("size '" + text + "' is not a positive number with an optional K or M");
  }
  return value;
}

inline void stamp(Payload payload, std::uint64_t hop) {
  payload.front() = payload.back() = static_cast<std::byte>(hop);
}

// Only two bytes are checked, because a full compare would cost as much as the transfer that is timed.
inline void check_stamp(Payload payload, std::uint64_t hop, int rank) {
  const auto want = static_cast<std::byte>(hop);
  if (payload.front() == want && payload.back() == want) return;
  throw std::runtime_error("rank " + std::to_string(rank) + ": payload of " + std::to_string(payload.size()) +
                           " bytes has stamps " + std::to_string(std::to_integer<int>(payload.front())) + " and " +
                           std::to_string(std::to_integer<int>(payload.back())) + ", expected " +
                           std::to_string(std::to_integer<int>(want)) + " at hop " + std::to_string(hop));
}

// Seconds per iteration, as rank 0 sees it. Collective: every rank calls it with its own part of the same work.
//   run(n)     does n iterations
//   agree(v)   gives every rank the value of rank 0
// Batches double until one is long enough to trust; they warm the buffers and the caches. Then one batch of about
// 0.3 s is timed as a whole, so the figure is a mean and reading the clock costs nothing.
template <class Run, class Agree>
double seconds_per_iteration(Run run, Agree agree) {
  constexpr double kTrusted = 0.02, kTimed = 0.3;
  auto timed = [&](std::uint64_t n) {
    const auto start = std::chrono::steady_clock::now();
    run(n);
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  run(2);  // the first touch of a page and the first use of a route are not part of any figure
  std::uint64_t n = 1;
  double batch = timed(n);
  while (agree(batch < kTrusted ? 1 : 0) == 1) batch = timed(n *= 2);
  const auto wanted = static_cast<std::uint64_t>(kTimed / batch * static_cast<double>(n));
  const std::uint64_t count = agree(std::max<std::uint64_t>(wanted, 3));
  return timed(count) / static_cast<double>(count);
}

// One token goes round a ring; a ping-pong is a ring of two. Each rank passes on the bytes that it received, so the
// buffer stays as hot as its size allows. The token that leaves rank r in a lap carries the stamp first_hop + r.
//   send(token)      to the next rank, returns when the buffer may change
//   receive(token)   from the previous rank
template <class Send, class Receive, class Agree>
double seconds_per_hop(int rank, int ranks, Payload token, Send send, Receive receive, Agree agree) {
  std::uint64_t first_hop = 1;  // not 0: a buffer of zeros must not pass
  auto laps = [&](std::uint64_t n) {
    for (std::uint64_t i = 0; i < n; ++i, first_hop += ranks) {
      if (rank == 0) {
        stamp(token, first_hop);
        send(token);
        receive(token);
        check_stamp(token, first_hop + ranks - 1, rank);
      } else {
        receive(token);
        check_stamp(token, first_hop + rank - 1, rank);
        stamp(token, first_hop + rank);
        send(token);
      }
    }
  };
  return seconds_per_iteration(laps, agree) / ranks;
}

// Two ranks send and receive at once. exchange(out, in) returns when `in` is full and `out` may change.
template <class Exchange, class Agree>
double seconds_per_exchange(int rank, Payload out, Payload in, Exchange exchange, Agree agree) {
  std::uint64_t hop = 1;
  auto exchanges = [&](std::uint64_t n) {
    for (std::uint64_t i = 0; i < n; ++i, ++hop) {
      stamp(out, hop);
      exchange(out, in);
      check_stamp(in, hop, rank);
    }
  };
  return seconds_per_iteration(exchanges, agree);
}

// `seconds` is the time of one transfer (or exchange) of `bytes` in one direction. 1 GB is 1e9 bytes. `variant` names a
// setting, if a program has several for the same test.
inline void print_result(const std::string& peer, const std::string& test, int ranks, Bytes bytes, double seconds,
                         const std::string& variant = "") {
  const std::string extra = variant.empty() ? "" : ",\"variant\":\"" + variant + "\"";
  std::printf("{\"peer\":\"%s\",\"test\":\"%s\",\"ranks\":%d,\"bytes\":%zu,\"us\":%.4f,\"gbs\":%.4f%s}\n", peer.c_str(),
              test.c_str(), ranks, bytes, seconds * 1e6, static_cast<double>(bytes) / seconds / 1e9, extra.c_str());
  std::fflush(stdout);
}

}  // namespace bench
