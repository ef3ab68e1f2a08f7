// The worlds that the transport's tests run in: every way that bytes can take, with ranks as threads.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "lockstep/base/clock.h"
#include "lockstep/world.h"

namespace lockstep::transport {

// A way for the bytes, and small knobs so that small tests reach the big paths.
struct Way {
  const char* name;
  Options options;
};

inline void PrintTo(const Way& way, std::ostream* out) { *out << way.name; }

inline std::vector<Way> all_ways() {
  using namespace std::chrono_literals;
  const auto make = [](const char* kind) {
    Options options;
    options.kind = parse_transport(kind);
    options.timeout = 30s;
    return options;
  };
  Options shm = make("shm");
  Options queue = make("shm");
  queue.shm_copy = ShmCopy::queue;
  Options small_queue = queue;
  small_queue.queue_bytes = 4096;
  Options eager_offers = make("shm");
  eager_offers.single_copy_from = 1;
  Options tcp = make("tcp");
  Options tcp6 = make("tcp");
  tcp6.tcp_address = "[::1]:0";
  Options unix_sockets = make("tcp");
  unix_sockets.tcp_address = "unix";
  Options small_segments = make("tcp");
  small_segments.segment_bytes = 1000;
  small_segments.socket_buffer_bytes = 16 << 10;
  return {{"shm", shm}, {"shm_queue", queue}, {"shm_small_queue", small_queue}, {"shm_offers", eager_offers},
          {"tcp", tcp}, {"tcp_ipv6", tcp6},   {"tcp_unix", unix_sockets},       {"tcp_small_segments", small_segments}};
}

class EveryWay : public ::testing::TestWithParam<Way> {
 protected:
  void run(int ranks, const std::function<void(World&)>& body) { thread_world(ranks, body, GetParam().options); }
};

inline std::string way_name(const ::testing::TestParamInfo<Way>& info) { return info.param.name; }

#define LOCKSTEP_EVERY_WAY(suite) INSTANTIATE_TEST_SUITE_P(, suite, ::testing::ValuesIn(all_ways()), way_name)

// Bytes that tell who sent them, to whom, with which tag and number.
inline std::vector<std::byte> pattern(std::size_t bytes, Rank from, Rank to, Tag tag, int number) {
  std::vector<std::byte> result(bytes);
  std::uint64_t state = static_cast<std::uint64_t>(from * 7919 + to * 104729 + static_cast<int>(tag) * 31 + number + 1);
  for (auto& byte : result) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    byte = static_cast<std::byte>(state >> 56);
  }
  return result;
}

inline void expect_recv(Transport& transport, Rank from, Tag tag, std::size_t bytes, int number) {
  std::vector<std::byte> got(bytes);
  transport.recv(from, tag, got);
  EXPECT_TRUE(got == pattern(bytes, from, transport.rank(), tag, number))
      << bytes << " bytes from rank " << from << " to " << transport.rank() << ", tag " << tag << ", number " << number;
}

}  // namespace lockstep::transport
