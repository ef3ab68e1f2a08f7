// Records what a rank did when.
//
//   trace::Span span(recorder, "all_reduce", "collective", {{"bytes", n}, {"algorithm", "ring"}});
//
// Off (a null recorder), a span costs a branch, and arguments given at once are still written to the stack (1 ns). On,
// it costs two clock reads and a store.
//
// Invariants:
//  1. A thread writes only to its own buffer, which it gets, whole, with its first span: that one takes a lock and
//     memory and may throw std::bad_alloc. After that nothing waits and nothing is allocated.
//  2. A buffer's spans are never changed or moved. Its size is published after each: a snapshot sees only
//     complete ones.
//  3. A full buffer drops what comes, and counts it.
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

#include "lockstep/base/clock.h"
#include "lockstep/base/types.h"
#include "lockstep/trace/trace.h"

namespace lockstep::trace {

// Strings are kept by address only. They must live as long as the recorder: literals, or what intern() returned.

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

// A span as the buffers hold it. A span that is off leaves it uninitialised.
struct Event {
  struct Argument {
    const char* key;
    std::int64_t value;
  };
  void begin(const char* its_name, const char* its_category, std::initializer_list<Arg> its_args);
  void add(const Arg& arg);
  const char* name;
  const char* category;
  Duration start;  // since Clock's epoch
  Duration end;
  std::array<Argument, kMaxArgs> args;
  std::uint8_t count;
  std::uint8_t texts;  // which of the args, by bit
  bool in_flight;
};

struct Buffer;

// One a rank. Any thread may call anything at any time. It must outlive all its spans.
class Recorder {
 public:
  // A span takes about 100 bytes; memory is touched only as spans come.
  static constexpr std::size_t kDefaultCapacity = std::size_t{1} << 16;

  // `capacity`: spans a thread can record.
  explicit Recorder(Rank rank, std::size_t capacity = kDefaultCapacity);
  ~Recorder();
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  // The name of the calling thread's track. Without one, the first thread is "main" and the n-th "thread n".
  void name_thread(const std::string& name);
  // A copy of `text` that lives as long as the recorder, for names made at run time. Takes a lock: not for hot paths.
  const char* intern(std::string_view text);
  // A work that went from issued to done; it may overlap with anything. An end before the start counts as the start.
  void flight(const char* name, const char* category, Clock::time_point start, Clock::time_point end,
              std::initializer_list<Arg> args = {});
  // All that has been recorded so far. Spans that are open now are not in it.
  RankTrace snapshot() const;

 private:
  friend class Span;
  static Buffer* open(Recorder& recorder, Event& event, const char* name, const char* category,
                      std::initializer_list<Arg> args);
  static void close(Buffer& buffer, Event& event);
  Buffer& buffer();
  Buffer& find_or_make_buffer();

  const std::uint64_t id_;  // never used again, as an address may be
  const Rank rank_;
  const std::size_t capacity_;
  mutable std::mutex mutex_;                      // guards what follows, and the buffers' names
  std::vector<std::unique_ptr<Buffer>> buffers_;  // in the order in which threads appeared
  std::set<std::string, std::less<>> interned_;
};

// From its construction to its destruction, on one thread. Arguments past kMaxArgs are left out.
class Span {
 public:
  Span(Recorder* recorder, const char* name, const char* category, std::initializer_list<Arg> args = {})
      : buffer_(recorder == nullptr ? nullptr : Recorder::open(*recorder, event_, name, category, args)) {}
  ~Span() {
    if (buffer_ != nullptr) Recorder::close(*buffer_, event_);
  }
  Span(const Span&) = delete;
  Span& operator=(const Span&) = delete;

  // For what is known only later.
  template <typename T>
  void arg(const char* key, T value) {
    if (buffer_ != nullptr) event_.add(Arg(key, value));
  }

 private:
  Event event_;
  Buffer* const buffer_;  // null: off
};

}  // namespace lockstep::trace
