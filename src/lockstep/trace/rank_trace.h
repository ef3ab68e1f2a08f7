// What a rank recorded, as a value that can be sent to rank 0, merged with others, analysed, and written to a file.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/trace.h"
#include "lockstep/types.h"

namespace lockstep::trace {

// The duration that is added to a rank's times to convert them to the common clock, which is rank 0's.
using ClockOffset = std::chrono::nanoseconds;

// A named stretch of time. Texts are indices into RankTrace::strings, where 0 means none. The struct has no padding,
// because it is sent as it lies in memory.
struct Slice {
  struct Arg {
    std::int64_t value = 0;  // the number itself, or the index of a string
    std::uint32_t key = 0;   // 0 if there is no such argument
    std::uint32_t is_text = 0;
  };
  std::chrono::nanoseconds start{0};  // since the epoch of the rank's Clock
  std::chrono::nanoseconds end{0};    // never before start
  std::uint32_t name = 0;
  std::uint32_t category = 0;
  std::array<Arg, kMaxArgs> args{};
};

// The slices of one thread. They nest. They are in the order of their start, and an enclosing slice comes before what
// it encloses.
struct Track {
  std::string name;
  std::vector<Slice> slices = {};
};

// What one rank recorded.
struct RankTrace {
  Rank rank = 0;
  int pid = 0;
  std::string host;
  std::uint64_t dropped = 0;                // spans that were lost because their thread's buffer was full
  std::vector<std::string> strings = {""};  // the texts that slices refer to; the first one is empty
  std::vector<Track> tracks = {};
  std::vector<Slice> flights = {};  // works from issue to completion, in the order of their start; they may overlap

  const std::string& text(std::uint32_t number) const { return strings.at(number); }
  // The argument of the slice with this key, or null if there is none.
  const Slice::Arg* find(const Slice& slice, std::string_view key) const;
};

// Spreads slices over as few lanes as possible so that no two slices on one lane overlap. Lanes are filled beginning
// with the first.
std::vector<std::vector<Slice>> lanes(std::vector<Slice> slices);

// A trace as bytes, for ranks on machines of the same kind. parse() allocates no more than a few times the size of its
// input. It throws Error if the input is inconsistent; what it returns is safe to read and to write to a file. There is
// no checksum.
std::string serialize(const RankTrace& trace);
RankTrace parse(std::string_view bytes);

}  // namespace lockstep::trace
