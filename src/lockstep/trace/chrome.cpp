#include "lockstep/trace/chrome.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <ostream>
#include <streambuf>
#include <utility>

#include "lockstep/base/atomic_file.h"
#include "lockstep/error.h"

namespace lockstep::trace {
namespace {

using nlohmann::json;
using std::chrono::nanoseconds;

// Bytes that are not UTF-8 are replaced. Otherwise dump() would throw, and the whole trace would be lost.
std::string dump(const json& value) { return value.dump(-1, ' ', false, json::error_handler_t::replace); }

// A stream buffer that writes to an AtomicFile. It keeps nothing back, because Writer hands over large pieces.
class FileBuffer : public std::streambuf {
 public:
  explicit FileBuffer(AtomicFile& file) : file_(file) {}

 private:
  std::streamsize xsputn(const char* text, std::streamsize size) override {
    file_.write(std::string_view(text, static_cast<std::size_t>(size)));
    return size;
  }
  int_type overflow(int_type letter) override {
    const char one = traits_type::to_char_type(letter);
    xsputn(&one, 1);
    return letter;
  }

  AtomicFile& file_;
};

// Writes events as JSON. They are formatted by hand, from strings that are escaped once, because one json object per
// event would be many times slower.
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
    // Microseconds with three decimals, made from integers. Doubles would round the ends, so that slices would no
    // longer nest.
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
  AtomicFile whole(file);
  FileBuffer buffer(whole);
  std::ostream out(&buffer);
  out.exceptions(std::ios::badbit);  // exceptions of the file reach the caller
  write_chrome_trace(out, ranks, offsets);
  out.flush();
  whole.commit();
}

}  // namespace lockstep::trace
