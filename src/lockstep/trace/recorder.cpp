#include "lockstep/trace.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <tuple>
#include <type_traits>
#include <unordered_map>
#include <utility>

#include "lockstep/base/environment.h"
#include "lockstep/error.h"
#include "lockstep/trace/rank_trace.h"

namespace lockstep::trace {

void Event::begin(const char* its_name, const char* its_category, std::initializer_list<Arg> its_args) {
  name = its_name;
  category = its_category;
  args = {};
  count = 0;
  texts = 0;
  in_flight = false;
  for (const Arg& arg : its_args) add(arg);
}

void Event::add(const Arg& arg) {
  if (count == kMaxArgs) return;
  texts = static_cast<std::uint8_t>(texts | static_cast<unsigned>(arg.is_text) << count);
  args[count++] = {arg.key, arg.value};
}

// The spans of one thread. It has cache lines of its own, because each thread writes the size of its buffer all the
// time.
struct alignas(64) Buffer {
  Buffer(std::uint64_t its_thread, std::string its_name, std::size_t room)
      : thread(its_thread),
        name(std::move(its_name)),
        capacity(room),
        events(std::make_unique_for_overwrite<Event[]>(room)) {}

  void push(const Event& event) {
    const std::size_t used = size.load(std::memory_order_relaxed);
    if (used == capacity) {
      dropped.fetch_add(1, std::memory_order_relaxed);
      return;
    }
    events[used] = event;
    size.store(used + 1, std::memory_order_release);
  }

  const std::uint64_t thread;
  std::string name;  // guarded by the recorder's mutex
  const std::size_t capacity;
  const std::unique_ptr<Event[]> events;
  std::atomic<std::size_t> size{0};
  std::atomic<std::uint64_t> dropped{0};
};

namespace {

static_assert(std::is_trivially_default_constructible_v<Event> && std::is_trivially_copyable_v<Event>);

std::uint64_t unique_number() {
  static std::atomic<std::uint64_t> last{0};
  return last.fetch_add(1, std::memory_order_relaxed) + 1;
}

// A number for the calling thread that is never reused. A std::thread::id may be given to a new thread when the old one
// has ended.
std::uint64_t this_thread() {
  thread_local const std::uint64_t number = unique_number();
  return number;
}

// The calling thread's buffers in the recorders that it used last. An entry of a destroyed recorder stays here but is
// never used, because recorder ids are not reused.
struct Cached {
  std::uint64_t recorder;
  Buffer* buffer;
};
constinit thread_local std::array<Cached, 4> cache{};

// Gives each text a number. Most texts are found by their address. Equal texts at different addresses get the same
// number.
class Numbers {
 public:
  explicit Numbers(std::vector<std::string>& strings) : strings_(strings) {}

  std::uint32_t operator()(const char* text) {
    if (text == nullptr || *text == '\0') return 0;
    const auto [known, is_new] = by_address_.try_emplace(text, 0);
    if (is_new) {
      const auto next = static_cast<std::uint32_t>(strings_.size());
      const auto [same, added] = by_text_.try_emplace(text, next);
      if (added) strings_.emplace_back(text);
      known->second = same->second;
    }
    return known->second;
  }

 private:
  std::vector<std::string>& strings_;
  std::unordered_map<const char*, std::uint32_t> by_address_;
  std::unordered_map<std::string, std::uint32_t> by_text_;
};

Slice slice_of(const Event& event, Numbers& number) {
  Slice slice{.start = event.start, .end = event.end, .name = number(event.name), .category = number(event.category)};
  for (std::size_t i = 0; i < event.count; ++i) {
    const auto& [key, value] = event.args[i];
    const std::uint32_t is_text = event.texts >> i & 1U;
    slice.args[i] = {is_text != 0 ? number(reinterpret_cast<const char*>(value)) : value, number(key), is_text};
  }
  return slice;
}

// Sorts by start, with an enclosing slice before what it encloses. Spans are recorded in the order of their ends, so of
// two slices with equal times the later one encloses the earlier one. That is why the order is reversed before the
// stable sort.
void sort_outer_first(std::vector<Slice>& slices) {
  std::ranges::reverse(slices);
  std::ranges::stable_sort(slices, {}, [](const Slice& slice) { return std::tuple(slice.start, -slice.end); });
}

}  // namespace

Recorder::Recorder(Rank rank, std::size_t capacity) : id_(unique_number()), rank_(rank), capacity_(capacity) {}

Recorder::~Recorder() = default;

Buffer& Recorder::buffer() {
  Cached& cached = cache[id_ % cache.size()];
  if (cached.recorder != id_) [[unlikely]]
    cached = {id_, &find_or_make_buffer()};
  return *cached.buffer;
}

Buffer& Recorder::find_or_make_buffer() {
  const std::uint64_t thread = this_thread();
  const std::lock_guard lock(mutex_);
  const auto mine = std::ranges::find(buffers_, thread, [](const auto& buffer) { return buffer->thread; });
  if (mine != buffers_.end()) return **mine;
  std::string name = buffers_.empty() ? "main" : fmt::format("thread {}", buffers_.size() + 1);
  return *buffers_.emplace_back(std::make_unique<Buffer>(thread, std::move(name), capacity_));
}

Buffer* Recorder::open(Recorder& recorder, Event& event, const char* name, const char* category,
                       std::initializer_list<Arg> args) {
  Buffer& mine = recorder.buffer();
  event.begin(name, category, args);
  event.start = Clock::now().time_since_epoch();
  return &mine;
}

void Recorder::close(Buffer& buffer, Event& event) {
  event.end = Clock::now().time_since_epoch();
  buffer.push(event);
}

void Recorder::flight(const char* name, const char* category, Clock::time_point start, Clock::time_point end,
                      std::initializer_list<Arg> args) {
  Event event{};
  event.begin(name, category, args);
  event.start = start.time_since_epoch();
  event.end = std::max(start, end).time_since_epoch();
  event.in_flight = true;
  buffer().push(event);
}

void Recorder::name_thread(const std::string& name) {
  Buffer& mine = buffer();
  const std::lock_guard lock(mutex_);
  mine.name = name;
}

const char* Recorder::intern(std::string_view text) {
  const std::lock_guard lock(mutex_);
  const auto known = interned_.find(text);
  return (known != interned_.end() ? known : interned_.emplace(text).first)->c_str();
}

RankTrace Recorder::snapshot() const {
  RankTrace trace{.rank = rank_, .pid = ::getpid(), .host = hostname()};
  Numbers number(trace.strings);
  const std::lock_guard lock(mutex_);
  for (const auto& buffer : buffers_) {
    Track track{.name = buffer->name};
    const std::size_t size = buffer->size.load(std::memory_order_acquire);
    for (std::size_t i = 0; i < size; ++i) {
      const Event& event = buffer->events[i];
      (event.in_flight ? trace.flights : track.slices).push_back(slice_of(event, number));
    }
    trace.dropped += buffer->dropped.load(std::memory_order_relaxed);
    sort_outer_first(track.slices);
    if (!track.slices.empty()) trace.tracks.push_back(std::move(track));
  }
  std::ranges::stable_sort(trace.flights, {}, &Slice::start);
  return trace;
}

}  // namespace lockstep::trace
