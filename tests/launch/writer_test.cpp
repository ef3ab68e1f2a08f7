#include "lockstep/launch/writer.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <string>

#include "lockstep/base/clock.h"

namespace lockstep::launch {
namespace {

struct Pipe {
  Pipe() {
    int ends[2];
    EXPECT_EQ(::pipe2(ends, O_CLOEXEC), 0);
    read = Fd(ends[0]);
    write = Fd(ends[1]);
  }
  Fd read;
  Fd write;
};

// Sleeps until `condition` holds, as the watcher does: on the writer's event.
template <typename Condition>
bool wait_until(Writer& writer, Condition condition) {
  const Deadline deadline = Deadline::in(10s);
  while (!condition() && !deadline.passed()) {
    pollfd entry{writer.event_fd(), POLLIN, 0};
    ::poll(&entry, 1, deadline.poll_ms());
    writer.acknowledge();
  }
  return condition();
}

std::string read_bytes(const Fd& fd, std::size_t size) {
  std::string text(size, '\0');
  std::size_t done = 0;
  while (done < size) {
    const ssize_t got = ::read(fd.get(), text.data() + done, size - done);
    if (got <= 0) break;
    done += static_cast<std::size_t>(got);
  }
  return text.substr(0, done);
}

TEST(Writer, WritesInOrder) {
  Pipe pipe;
  Writer writer;
  for (int i = 0; i < 100; ++i) writer.push(pipe.write.get(), std::to_string(i) + "\n");
  EXPECT_TRUE(wait_until(writer, [&] { return writer.idle(); }));
  EXPECT_TRUE(read_bytes(pipe.read, 290).ends_with("\n98\n99\n"));
}

TEST(Writer, IsFullWhileNobodyReadsAndThenSaysThatThereIsRoom) {
  Pipe pipe;
  Writer writer;
  const std::string piece(100'000, 'x');
  std::size_t pushed = 0;
  while (!writer.full()) {
    writer.push(pipe.write.get(), piece);
    pushed += piece.size();
    ASSERT_LT(pushed, 4 * Writer::kRoom);
  }
  std::thread reader([&] { EXPECT_EQ(read_bytes(pipe.read, pushed).size(), pushed); });
  EXPECT_TRUE(wait_until(writer, [&] { return !writer.full(); }));
  EXPECT_TRUE(wait_until(writer, [&] { return writer.idle(); }));
  reader.join();
}

TEST(Writer, GivesUpADescriptorThatFails) {
  ::signal(SIGPIPE, SIG_IGN);
  Pipe broken;
  Pipe good;
  broken.read.reset();
  Writer writer;
  writer.push(broken.write.get(), "lost");
  EXPECT_TRUE(wait_until(writer, [&] { return !writer.failures().empty(); }));
  EXPECT_EQ(writer.failures().at(broken.write.get()), EPIPE);
  writer.push(broken.write.get(), "lost as well");
  writer.push(good.write.get(), "kept");
  EXPECT_TRUE(wait_until(writer, [&] { return writer.idle(); }));
  EXPECT_EQ(read_bytes(good.read, 4), "kept");
}

TEST(Writer, EndsAtOnceWhileNobodyReads) {
  Pipe pipe;
  const auto start = Clock::now();
  {
    Writer writer;
    writer.push(pipe.write.get(), std::string(1'000'000, 'x'));
  }
  EXPECT_LT(seconds_since(start), 1.0);
}

}  // namespace
}  // namespace lockstep::launch
