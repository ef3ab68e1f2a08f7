// Writes the output of the ranks on a thread of its own, so that a slow reader never delays the supervision of the
// ranks.
//
// All methods are called by one thread, the supervisor's. The writing thread touches only what `State` holds.
//
// 1. What is pushed is written whole and in order, also across descriptors. So lines never mix, even if several
//    descriptors share a terminal.
// 2. push() never blocks and always takes what it is given. The caller asks full() first, and stops reading from the
//    ranks while it is true. Then their pipes fill up and the ranks wait. That is the back-pressure.
// 3. A descriptor that fails is given up: later bytes for it are dropped, and failures() reports it.
// 4. Descriptors belong to the caller and must outlive the writer.
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
  static constexpr std::size_t kRoom = 1 << 20;  // the number of waiting bytes from which the writer is full

  Writer();
  // Gives up what is not written yet. It never waits long: a write that the kernel holds is left behind.
  ~Writer();

  void push(int fd, std::string bytes);
  bool full() const;
  bool idle() const;  // everything has been written
  // The descriptors that failed, with their errno.
  std::map<int, int> failures() const;

  // A descriptor that becomes readable when full(), idle() or failures() may have changed. acknowledge() makes it
  // unreadable again.
  int event_fd() const;
  void acknowledge();

 private:
  struct Item {
    int fd;
    std::string bytes;
  };
  // Shared with the writing thread, which may outlive the writer if the kernel holds a write.
  struct State {
    Fd changed;  // eventfd that wakes the supervisor
    Fd stop;     // eventfd that wakes the writing thread

    mutable std::mutex mutex;  // guards everything below
    std::condition_variable wake;
    std::deque<Item> queue;
    std::size_t waiting = 0;  // bytes in the queue and in the item that is being written
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
