#include "lockstep/trace/rank_trace.h"

#include <fmt/format.h>
#include <algorithm>
#include <cstring>
#include <functional>
#include <queue>
#include <type_traits>
#include <utility>

#include "lockstep/error.h"

namespace lockstep::trace {
namespace {

// "LSTRACE1" in memory. A machine with the other byte order reads it as another number, so it refuses the trace.
constexpr std::uint64_t kMagic = 0x314543415254534cULL;
// 73 years in nanoseconds. Times and offsets below this limit can be added without overflow.
constexpr std::chrono::nanoseconds kLatest{std::int64_t{1} << 61};

static_assert(std::has_unique_object_representations_v<Slice>);

class Writer {
 public:
  template <typename T>
  void put(T value) {
    static_assert(std::is_arithmetic_v<T>);
    out.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  void put(const std::string& text) {
    put(std::uint64_t{text.size()});
    out += text;
  }
  void put(const std::vector<Slice>& slices) {
    put(std::uint64_t{slices.size()});
    out.append(reinterpret_cast<const char*>(slices.data()), slices.size() * sizeof(Slice));
  }
  std::string out;
};

// Reads a serialized trace. Every count is compared with the rest of the input before memory is allocated for it.
class Reader {
 public:
  explicit Reader(std::string_view input) : size_(input.size()), left_(input) {}

  template <typename T>
  T get() {
    static_assert(std::is_arithmetic_v<T>);
    T value;
    copy(&value, sizeof value);
    return value;
  }
  std::string text() {
    std::string text(count(1), '\0');
    copy(text.data(), text.size());
    return text;
  }
  std::vector<Slice> slices(const RankTrace& trace) {
    std::vector<Slice> slices(count(sizeof(Slice)));
    copy(slices.data(), slices.size() * sizeof(Slice));
    for (const Slice& slice : slices) check(slice, trace.strings.size());
    return slices;
  }
  // Reads the number of items that follow. Each has at least `each` bytes: throws Error if the rest of the input is too
  // short for them.
  std::size_t count(std::size_t each) {
    const auto things = get<std::uint64_t>();
    if (things > left_.size() / each) damaged(fmt::format("{} things of {} bytes do not fit", things, each));
    return things;
  }
  void end() const {
    if (!left_.empty()) damaged("too long");
  }
  [[noreturn]] void damaged(const std::string& why) const {
    throw Error(fmt::format("a trace is damaged at byte {} of {}: {}", size_ - left_.size(), size_, why),
                "run the same build of Lockstep on all ranks");
  }

 private:
  void copy(void* to, std::size_t bytes) {
    if (bytes > left_.size()) damaged("too short");
    if (bytes > 0) std::memcpy(to, left_.data(), bytes);
    left_.remove_prefix(bytes);
  }
  void check(const Slice& slice, std::size_t strings) const {
    bool good = slice.start.count() >= 0 && slice.start <= slice.end && slice.end <= kLatest;
    good = good && slice.name < strings && slice.category < strings;
    for (const Slice::Arg& arg : slice.args)
      good = good && arg.key < strings && (arg.is_text == 0 || std::cmp_less(arg.value, strings)) &&
             (arg.is_text == 0 || arg.value >= 0);
    if (!good) damaged("a slice among those before makes no sense");
  }

  std::size_t size_;
  std::string_view left_;
};

}  // namespace

const Slice::Arg* RankTrace::find(const Slice& slice, std::string_view key) const {
  for (const Slice::Arg& arg : slice.args)
    if (arg.key != 0 && text(arg.key) == key) return &arg;
  return nullptr;
}

std::vector<std::vector<Slice>> lanes(std::vector<Slice> slices) {
  std::ranges::stable_sort(slices, {}, &Slice::start);
  using Busy = std::pair<std::chrono::nanoseconds, std::size_t>;  // until when a lane is busy, and which lane it is
  std::priority_queue<Busy, std::vector<Busy>, std::greater<>> busy;
  std::priority_queue<std::size_t, std::vector<std::size_t>, std::greater<>> free;
  std::vector<std::vector<Slice>> result;
  for (const Slice& slice : slices) {
    for (; !busy.empty() && busy.top().first <= slice.start; busy.pop()) free.push(busy.top().second);
    if (free.empty()) {
      free.push(result.size());
      result.emplace_back();
    }
    result[free.top()].push_back(slice);
    busy.emplace(slice.end, free.top());
    free.pop();
  }
  return result;
}

std::string serialize(const RankTrace& trace) {
  Writer writer;
  writer.put(kMagic);
  writer.put(std::int32_t{trace.rank});
  writer.put(std::int32_t{trace.pid});
  writer.put(trace.host);
  writer.put(trace.dropped);
  writer.put(std::uint64_t{trace.strings.size()});
  for (const std::string& text : trace.strings) writer.put(text);
  writer.put(std::uint64_t{trace.tracks.size()});
  for (const Track& track : trace.tracks) {
    writer.put(track.name);
    writer.put(track.slices);
  }
  writer.put(trace.flights);
  return std::move(writer.out);
}

RankTrace parse(std::string_view bytes) {
  Reader reader(bytes);
  if (reader.get<std::uint64_t>() != kMagic) reader.damaged("it does not begin as one");
  RankTrace trace;
  trace.rank = reader.get<std::int32_t>();
  if (trace.rank < 0) reader.damaged(fmt::format("rank {}", trace.rank));
  trace.pid = reader.get<std::int32_t>();
  trace.host = reader.text();
  trace.dropped = reader.get<std::uint64_t>();
  trace.strings.resize(reader.count(sizeof(std::uint64_t)));
  for (std::string& text : trace.strings) text = reader.text();
  if (trace.strings.empty() || !trace.strings.front().empty()) reader.damaged("its first string is not empty");
  trace.tracks.resize(reader.count(2 * sizeof(std::uint64_t)));
  for (Track& track : trace.tracks) {
    track.name = reader.text();
    track.slices = reader.slices(trace);
  }
  trace.flights = reader.slices(trace);
  reader.end();
  return trace;
}

}  // namespace lockstep::trace
