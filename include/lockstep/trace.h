// Records what a rank did, and when, as spans.
//
//   trace::Span span(recorder, "all_reduce", "collective", {{"bytes", n}, {"algorithm", "ring"}});
//
// When tracing is off (a null recorder), a span costs one branch; arguments that its constructor gets are still written
// to the stack (1 ns). When tracing is on, a span costs two clock reads and a store.
//
// Invariants:
//  1. A thread writes only to its own buffer. The buffer is allocated whole by the thread's first span, which takes a
//     lock and may throw std::bad_alloc. After that nothing is allocated, and nothing waits; only a thread that uses
//     several recorders in turn may take the lock again.
//  2. Recorded spans are never changed or moved. The size of a buffer is published after each span, so a snapshot sees
//     only complete spans.
//  3. A full buffer drops new spans and counts them.
#pragma once

#include <array>
#include <concepts>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/types.h"

namespace lockstep::trace {

struct RankTrace;

// The largest number of arguments of a span.
constexpr std::size_t kMaxArgs = 4;

// Strings are kept by their address only. They must live as long as the recorder, so use literals or what intern()
// returned.

// A number or a text that a span carries.
struct Arg {
  template <std::integral T>
  Arg(const char* its_key, T number) : key(its_key), value(static_cast<std::int64_t>(number)) {}
  Arg(const char* its_key, const char* text)
      : key(its_key), value(reinterpret_cast<std::intptr_t>(text)), is_text(true) {}
  const char* key;
  std::int64_t value;
  bool is_text = false;
};

// A span as the buffers hold it. When tracing is off, a Span leaves it uninitialised.
struct Event {
  struct Argument {
    const char* key;
    std::int64_t value;
  };
  void begin(const char* its_name, const char* its_category, std::initializer_list<Arg> its_args);
  void add(const Arg& arg);
  const char* name;
  const char* category;
  Duration start;  // since the epoch of Clock
  Duration end;
  std::array<Argument, kMaxArgs> args;
  std::uint8_t count;
  std::uint8_t texts;  // bit i is set if args[i] is a text
  bool in_flight;
};

struct Buffer;

// Records the spans of one rank. All methods may be called from any thread at any time. The recorder must outlive all
// its spans.
class Recorder {
 public:
  // Spans per thread. A span takes about 100 bytes, and memory is touched only as spans are recorded.
  static constexpr std::size_t kDefaultCapacity = std::size_t{1} << 16;

  // `capacity` is the number of spans that each thread can record.
  explicit Recorder(Rank rank, std::size_t capacity = kDefaultCapacity);
  ~Recorder();
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  // Names the calling thread's track. Without a name, the first thread is "main" and the n-th is "thread n".
  void name_thread(const std::string& name);
  // A copy of `text` that lives as long as the recorder, for names that are made at run time. It takes a lock, so it is
  // not for hot paths.
  const char* intern(std::string_view text);
  // Records a work from its issue to its completion. It may overlap with anything. An end before the start counts as
  // the start.
  void flight(const char* name, const char* category, Clock::time_point start, Clock::time_point end,
              std::initializer_list<Arg> args = {});
  // For Lockstep itself: a copy of all that has been recorded so far, without the spans that are still open.
  RankTrace snapshot() const;

 private:
  friend class Span;
  static Buffer* open(Recorder& recorder, Event& event, const char* name, const char* category,
                      std::initializer_list<Arg> args);
  static void close(Buffer& buffer, Event& event);
  Buffer& buffer();
  Buffer& find_or_make_buffer();

  const std::uint64_t id_;  // never reused, unlike an address
  const Rank rank_;
  const std::size_t capacity_;
  mutable std::mutex mutex_;                      // guards the members below and the names of the buffers
  std::vector<std::unique_ptr<Buffer>> buffers_;  // in the order in which threads appeared
  std::set<std::string, std::less<>> interned_;
};

// A span lasts from its construction to its destruction, both on one thread. Arguments after the first kMaxArgs are
// left out.
class Span {
 public:
  Span(Recorder* recorder, const char* name, const char* category, std::initializer_list<Arg> args = {})
      : buffer_(recorder == nullptr ? nullptr : Recorder::open(*recorder, event_, name, category, args)) {}
  ~Span() {
    if (buffer_ != nullptr) Recorder::close(*buffer_, event_);
  }
  Span(const Span&) = delete;
  Span& operator=(const Span&) = delete;

  // Adds an argument that is known only after construction.
  template <typename T>
  void arg(const char* key, T value) {
    if (buffer_ != nullptr) event_.add(Arg(key, value));
  }

 private:
  Event event_;
  Buffer* const buffer_;  // null when tracing is off
};

}  // namespace lockstep::trace
