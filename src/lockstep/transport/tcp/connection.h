// One connection to one peer, both ways, with all its traffic.
//
// On the wire a frame is a header of 48 bytes and a segment of a message. Header and segment leave in one call.
// Messages with different tags take turns segment by segment, so that a long one does not hold up a short one; messages
// with one tag keep their order. The socket holds as many segments as its buffers take.
//
// Not thread-safe: the endpoint's mutex guards it. Nothing here blocks.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/base/fd.h"
#include "lockstep/base/types.h"
#include "lockstep/transport/endpoint.h"
#include "lockstep/transport/mailbox.h"

namespace lockstep::transport::tcp {

struct FrameHeader {
  enum Kind : std::uint32_t { segment = 0x5e61, goodbye = 0xb1e5, failure = 0xfa11, mismatch = 0xd1ff };
  std::uint32_t kind;
  Tag tag;                      // of a failure: who is to blame
  std::uint64_t total;          // bytes of the message
  std::uint64_t segment_bytes;  // bytes that follow
  Label label;
};
static_assert(sizeof(FrameHeader) == 48);

class Connection {
 public:
  // What the connection tells its endpoint.
  struct Events {
    std::function<void(Operation&)> sent;                 // all bytes are with the kernel
    std::function<void(Incoming&, std::size_t)> arrived;  // bytes were written to a message's destination
    std::function<void(const Cause&)> failed;             // the peer says who failed, and how
    std::function<void()> left;                           // the peer said goodbye
    std::function<void(const std::string&, int)> lost;    // closed or reset without a goodbye; why, and errno or 0
  };

  Connection(Fd fd, std::size_t segment_bytes, Mailbox& mailbox, std::vector<Operation*>& sends, Events events);

  int fd() const { return fd_.get(); }
  bool open() const { return open_; }
  bool has_output() const { return open_ && (sending_ != nullptr || !sends_.empty()); }

  // Each moves what it can without blocking. True if it moved anything.
  bool write_some();
  bool read_some();

  // A send gives up. True when part of it was written: that leaves the connection unusable.
  bool forget(const Operation& operation);
  // A last frame, as far as the socket takes it; then no more output. `culprit` and `text` go with a failure.
  void say_last(FrameHeader::Kind kind, Rank culprit = 0, const std::string& text = "");

 private:
  void begin_segment();
  Operation* next_send();
  void end_segment();
  void parse();
  void consume_header();
  void lose(const std::string& why, int error = 0);
  void lose_after_reading(int error);

  Fd fd_;
  const std::size_t segment_bytes_;
  Mailbox& mailbox_;
  std::vector<Operation*>& sends_;  // the endpoint's list for this peer: in order, incomplete
  Events events_;
  bool open_ = true;
  bool said_goodbye_ = false;  // the peer

  // Output: the segment being written.
  Operation* sending_ = nullptr;
  FrameHeader out_header_{};
  std::size_t out_done_ = 0;  // of header and segment together
  Tag last_tag_ = 0;

  // Input: bytes read ahead, and the segment that they belong to.
  std::unique_ptr<std::byte[]> buffer_;
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
  FrameHeader in_header_{};
  Incoming* receiving_ = nullptr;
  std::size_t in_left_ = 0;  // of the segment
};

}  // namespace lockstep::transport::tcp
