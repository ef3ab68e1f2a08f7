#include "lockstep/launch/writer.h"

#include <poll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdint>

#include "lockstep/base/clock.h"
#include "lockstep/base/thread.h"
#include "lockstep/error.h"

namespace lockstep::launch {
namespace {

Fd new_eventfd() {
  Fd fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!fd) throw SystemError(errno, "cannot make an eventfd", "a higher `ulimit -n`");
  return fd;
}

void signal_event(const Fd& event) {
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto written = ::write(event.get(), &one, sizeof one);
}

}  // namespace

Writer::Writer() : state_(std::make_shared<State>()) {
  state_->changed = new_eventfd();
  state_->stop = new_eventfd();
  thread_ = thread_without_signals("the launcher's output thread", [state = state_] { work(state); });
}

Writer::~Writer() {
  std::unique_lock lock(state_->mutex);
  state_->stopping = true;
  signal_event(state_->stop);
  state_->wake.notify_all();
  const bool stopped = state_->wake.wait_for(lock, 200ms, [&] { return state_->stopped; });
  lock.unlock();
  if (stopped)
    thread_.join();
  else
    thread_.detach();  // a stopped terminal blocks the thread, which ends with the process
}

void Writer::push(int fd, std::string bytes) {
  if (bytes.empty()) return;
  const std::lock_guard lock(state_->mutex);
  state_->waiting += bytes.size();
  state_->queue.push_back({fd, std::move(bytes)});
  state_->wake.notify_all();
}

bool Writer::full() const {
  const std::lock_guard lock(state_->mutex);
  return state_->waiting >= kRoom;
}

bool Writer::idle() const {
  const std::lock_guard lock(state_->mutex);
  return state_->waiting == 0;
}

std::map<int, int> Writer::failures() const {
  const std::lock_guard lock(state_->mutex);
  return state_->failures;
}

int Writer::event_fd() const { return state_->changed.get(); }

void Writer::acknowledge() {
  std::uint64_t count = 0;
  [[maybe_unused]] const auto taken = ::read(state_->changed.get(), &count, sizeof count);
}

void Writer::work(const std::shared_ptr<State>& state) {
  std::unique_lock lock(state->mutex);
  while (true) {
    state->wake.wait(lock, [&] { return state->stopping || !state->queue.empty(); });
    if (state->stopping) break;
    const Item item = std::move(state->queue.front());
    state->queue.pop_front();
    const bool failed_before = state->failures.contains(item.fd);
    lock.unlock();
    if (!failed_before) write_item(*state, item);
    lock.lock();
    const bool was_full = state->waiting >= kRoom;
    state->waiting -= item.bytes.size();
    const bool room_again = was_full && state->waiting < kRoom;
    const bool failed_now = !failed_before && state->failures.contains(item.fd);
    if (room_again || state->waiting == 0 || failed_now) signal_event(state->changed);
  }
  state->stopped = true;
  state->wake.notify_all();
}

// Waits in poll and not in write, so that the destructor can end the wait. A pipe that poll reports as writable takes
// up to PIPE_BUF bytes without blocking.
void Writer::write_item(State& state, const Item& item) {
  for (std::size_t done = 0; done < item.bytes.size();) {
    pollfd entries[] = {{item.fd, POLLOUT, 0}, {state.stop.get(), POLLIN, 0}};
    if (::poll(entries, 2, -1) < 0 && errno != EINTR) return;
    if (entries[1].revents != 0) return;
    if (entries[0].revents == 0) continue;
    const std::size_t piece = std::min<std::size_t>(item.bytes.size() - done, PIPE_BUF);
    const ssize_t written = ::write(item.fd, item.bytes.data() + done, piece);
    if (written >= 0) {
      done += static_cast<std::size_t>(written);
    } else if (const int error = errno; error != EINTR && error != EAGAIN) {
      const std::lock_guard lock(state.mutex);
      state.failures[item.fd] = error;
      return;
    }
  }
}

}  // namespace lockstep::launch
