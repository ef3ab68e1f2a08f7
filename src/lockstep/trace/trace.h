// What a rank recorded, as a value: it can be sent to rank 0, merged with others, analysed, written to a file.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/types.h"

namespace lockstep::trace {

// At most this many arguments a slice.
constexpr std::size_t kMaxArgs = 4;

// Added to a rank's times, it puts them on the common clock (rank 0's).
using ClockOffset = std::chrono::nanoseconds;

// A stretch of time. Texts are numbers into RankTrace::strings, 0 for none. It has no padding: it is sent as it is.
struct Slice {
  struct Arg {
    std::int64_t value = 0;  // the number, or which string
    std::uint32_t key = 0;   // 0: there is no such argument
    std::uint32_t is_text = 0;
  };
  std::chrono::nanoseconds start{0};  // since the epoch of the rank's Clock
  std::chrono::nanoseconds end{0};    // never before start
  std::uint32_t name = 0;
  std::uint32_t category = 0;
  std::array<Arg, kMaxArgs> args{};
};

// One thread. Its slices nest; they come in order of start, and an enclosing one before what it encloses.
struct Track {
  std::string name;
  std::vector<Slice> slices = {};
};

struct RankTrace {
  Rank rank = 0;
  int pid = 0;
  std::string host;
  std::uint64_t dropped = 0;                // spans that found their thread's buffer full
  std::vector<std::string> strings = {""};  // the first is empty
  std::vector<Track> tracks = {};
  std::vector<Slice> flights = {};  // works from issued to done, in order of start; they overlap as they like

  const std::string& text(std::uint32_t number) const { return strings.at(number); }
  // Null when the slice has no such argument.
  const Slice::Arg* find(const Slice& slice, std::string_view key) const;
};

// Spreads slices over as few lanes as possible, so that no two on one lane overlap. Lanes are filled from the first.
std::vector<std::vector<Slice>> lanes(std::vector<Slice> slices);

// For ranks of one kind of machine. parse() takes no more memory than a few times its input. It throws Error for input
// that does not hold together; what it returns is safe to read and to write. There is no checksum.
std::string serialize(const RankTrace& trace);
RankTrace parse(std::string_view bytes);

}  // namespace lockstep::trace
