// The basic types that every layer uses.
#pragma once

#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>

namespace lockstep {

// The number of a process (or thread) in its world, 0 to size-1.
using Rank = int;

// A rank, a stage or another number that is never negative, as an index or as the size of a container.
template <std::signed_integral Number>
constexpr std::size_t index_of(Number number) {
  return static_cast<std::size_t>(number);
}

// Distinguishes the streams of messages between two ranks.
using Tag = std::uint32_t;

// Time that never runs backwards, and spans of it.
using Clock = std::chrono::steady_clock;
using Duration = Clock::duration;

// Memory as the transports see it.
using Bytes = std::span<std::byte>;
using ConstBytes = std::span<const std::byte>;

template <typename T>
ConstBytes bytes_of(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}
template <typename T>
Bytes writable_bytes_of(T& value) {
  return std::as_writable_bytes(std::span(&value, 1));
}

}  // namespace lockstep
