#include "lockstep/trace/chrome.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>

#include "lockstep/base/error.h"

namespace lockstep::trace {
namespace {

using nlohmann::json;
using std::chrono::nanoseconds;

// Bytes that are no UTF-8 are replaced: they must not cost the whole trace.
std::string dump(const json& value) { return value.dump(-1, ' ', false, json::error_handler_t::replace); }

// Events are formatted by hand, from strings escaped once: a json object each would be many times slower.
class Writer {
 public:
  Writer(std::ostream& out, nanoseconds origin) : out_(out), origin_(origin) {}

  void rank(const RankTrace& trace, ClockOffset offset) {
    std::vector<std::string> quoted;
    for (const std::string& text : trace.strings) quoted.push_back(dump(text));
    const Place process{trace.rank, 0};
    metadata("process_name", process, {{"name", fmt::format("rank {}", trace.rank)}});
    metadata("process_labels", process, {{"labels", fmt::format("{}, pid {}", trace.host, trace.pid)}});
    metadata("process_sort_index", process, {{"sort_index", trace.rank}});
    int tid = 0;
    const auto track = [&](const std::string& name, const std::vector<Slice>& slices) {
      const Place place{trace.rank, ++tid};
      metadata("thread_name", place, {{"name", name}});
      metadata("thread_sort_index", place, {{"sort_index", tid}});
      for (const Slice& slice : slices) complete(slice, offset, place, quoted);
    };
    for (const Track& thread : trace.tracks) track(thread.name, thread.slices);
    int lane = 0;
    for (const std::vector<Slice>& slices : lanes(trace.flights)) track(fmt::format("in flight {}", ++lane), slices);
  }

  void flush() {
    out_.write(text_.data(), static_cast<std::streamsize>(text_.size()));
    text_.clear();
  }

 private:
  struct Place {
    Rank pid;
    int tid;
  };

  template <typename... Args>
  void add(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(text_), format, std::forward<Args>(args)...);
  }

  void begin_event() {
    if (text_.size() > std::size_t{1} << 20) flush();
    add("{}", first_ ? "\n" : ",\n");
    first_ = false;
  }

  void metadata(const char* name, Place place, const json& args) {
    begin_event();
    add(R"({{"ph":"M","name":"{}","pid":{},"tid":{},"args":{}}})", name, place.pid, place.tid, dump(args));
  }

  void complete(const Slice& slice, ClockOffset offset, Place place, const std::vector<std::string>& quoted) {
    // In microseconds, to the nanosecond: doubles would round the ends so that slices no longer nest.
    const auto start = (slice.start + offset - origin_).count();
    const auto length = (slice.end - slice.start).count();
    begin_event();
    add(R"({{"ph":"X","name":{},"cat":{},"ts":{}.{:03},"dur":{}.{:03},"pid":{},"tid":{},"args":{{)",
        quoted.at(slice.name), quoted.at(slice.category), start / 1000, start % 1000, length / 1000, length % 1000,
        place.pid, place.tid);
    const char* separator = "";
    for (const Slice::Arg& arg : slice.args) {
      if (arg.key == 0) continue;
      add("{}{}:", separator, quoted.at(arg.key));
      arg.is_text != 0 ? add("{}", quoted.at(static_cast<std::size_t>(arg.value))) : add("{}", arg.value);
      separator = ",";
    }
    add("}}}}");
  }

  std::ostream& out_;
  const nanoseconds origin_;
  fmt::memory_buffer text_;
  bool first_ = true;
};

nanoseconds earliest(const RankTrace& trace) {
  nanoseconds first = nanoseconds::max();
  for (const Track& track : trace.tracks)
    for (const Slice& slice : track.slices) first = std::min(first, slice.start);
  for (const Slice& slice : trace.flights) first = std::min(first, slice.start);
  return first;
}

}  // namespace

void write_chrome_trace(std::ostream& out, const std::vector<RankTrace>& ranks,
                        const std::vector<ClockOffset>& offsets) {
  if (!offsets.empty() && offsets.size() != ranks.size())
    throw UsageError(fmt::format("{} clock offsets for the traces of {} ranks", offsets.size(), ranks.size()));
  const auto offset = [&](std::size_t i) { return offsets.empty() ? ClockOffset{0} : offsets[i]; };

  nanoseconds origin = nanoseconds::max();
  std::uint64_t dropped = 0;
  json sources = json::array();
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    const RankTrace& trace = ranks[i];
    const nanoseconds first = earliest(trace);
    if (first != nanoseconds::max()) origin = std::min(origin, first + offset(i));
    dropped += trace.dropped;
    sources.push_back({{"rank", trace.rank},
                       {"host", trace.host},
                       {"pid", trace.pid},
                       {"dropped", trace.dropped},
                       {"clock_offset_ns", offset(i).count()}});
  }

  out << R"({"displayTimeUnit":"ms","otherData":)"
      << dump({{"producer", "lockstep"}, {"dropped", dropped}, {"ranks", sources}}) << R"(,"traceEvents":[)";
  Writer writer(out, origin);
  for (std::size_t i = 0; i < ranks.size(); ++i) writer.rank(ranks[i], offset(i));
  writer.flush();
  out << "\n]}\n";
}

void write_chrome_trace(const std::string& file, const std::vector<RankTrace>& ranks,
                        const std::vector<ClockOffset>& offsets) {
  // Goes in any case: once renamed there is nothing left to remove.
  struct Temporary {
    ~Temporary() { std::remove(name.c_str()); }
    const std::string name;
  } const temporary{fmt::format("{}.tmp.{}", file, ::getpid())};

  errno = 0;
  std::ofstream out(temporary.name, std::ios::binary | std::ios::trunc);
  if (out) write_chrome_trace(out, ranks, offsets);
  if (out) out.close();
  if (!out || std::rename(temporary.name.c_str(), file.c_str()) != 0)
    throw SystemError(errno != 0 ? errno : EIO, fmt::format("can't write the trace to {}", file),
                      "name a file, in a folder that exists, has room, and lets you write");
}

}  // namespace lockstep::trace
