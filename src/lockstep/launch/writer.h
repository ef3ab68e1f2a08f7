// Writes what the ranks said, on a thread of its own, so that a slow reader never holds up the watch over the ranks.
//
// All methods are called by one thread, the watcher; the writing thread only touches what `State` holds.
//
// 1. What is pushed is written whole and in order, also across descriptors: lines never mix, whichever of them share a
//    terminal.
// 2. push() never blocks and always takes what it is given. The caller asks full() first and stops reading the ranks
//    when it says so; then their pipes fill up and the ranks wait: that is the back-pressure.
// 3. A descriptor that fails is given up: later bytes for it are dropped, and failures() tells.
// 4. Descriptors belong to the caller and outlive the writer.
#pragma once

#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "lockstep/base/fd.h"

namespace lockstep::launch {

class Writer {
 public:
  static constexpr std::size_t kRoom = 1 << 20;  // bytes that may wait

  Writer();
  // Gives up what is not written yet. Never waits long: a write that the kernel holds is left behind.
  ~Writer();

  void push(int fd, std::string bytes);
  bool full() const;
  bool idle() const;  // all is written
  // Which descriptors failed, with their errno.
  std::map<int, int> failures() const;

  // Readable when full(), idle() or failures() may have changed. acknowledge() makes it unreadable again.
  int event_fd() const;
  void acknowledge();

 private:
  struct Item {
    int fd;
    std::string bytes;
  };
  // Shared with the thread, which may outlive the writer by one write that the kernel holds.
  struct State {
    Fd changed;  // eventfd: towards the watcher
    Fd stop;     // eventfd: towards the thread

    mutable std::mutex mutex;  // guards everything below
    std::condition_variable wake;
    std::deque<Item> queue;
    std::size_t waiting = 0;  // bytes in the queue and in the writing thread's hands
    bool stopping = false;
    bool stopped = false;
    std::map<int, int> failures;
  };
  static void work(const std::shared_ptr<State>& state);
  static void write_item(State& state, const Item& item);

  std::shared_ptr<State> state_;
  std::thread thread_;
};

}  // namespace lockstep::launch
