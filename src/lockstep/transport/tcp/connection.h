// One connection to one peer, with all traffic in both directions.
//
// On the wire a frame is a header of 48 bytes and a segment of a message. Header and segment are sent in one call.
// Messages with different tags take turns segment by segment, so that a long message does not delay a short one. At
// most two messages are under way at a time; others begin when one of these is complete. Messages with the same tag
// keep their order. As many segments are in flight as the socket's buffers hold.
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
#include "lockstep/transport/endpoint.h"
#include "lockstep/transport/mailbox.h"
#include "lockstep/types.h"

namespace lockstep::transport::tcp {

struct FrameHeader {
  enum Kind : std::uint32_t { segment = 0x5e61, goodbye = 0xb1e5, failure = 0xfa11, mismatch = 0xd1ff };
  std::uint32_t kind;
  Tag tag;                      // the tag of the message; in a failure or mismatch, the rank that is to blame
  std::uint64_t total;          // bytes of the message
  std::uint64_t segment_bytes;  // bytes that follow this header
  Label label;
};
static_assert(sizeof(FrameHeader) == 48);

class Connection {
 public:
  // What the connection tells its endpoint.
  struct Events {
    std::function<void(Operation&)> sent;                 // all bytes of a send were handed to the kernel
    std::function<void(Incoming&, std::size_t)> arrived;  // bytes were written to a message's destination
    std::function<void(const Cause&)> failed;             // the peer reports which rank failed, and how
    std::function<void()> left;                           // the connection ended after the peer's goodbye
    std::function<void(const std::string&, int)> lost;    // it ended without a goodbye: the reason, and errno or 0
  };

  Connection(Fd fd, std::size_t segment_bytes, Mailbox& mailbox, std::vector<Operation*>& sends, Events events);

  int fd() const { return fd_.get(); }
  bool open() const { return open_; }
  bool has_output() const { return open_ && (sending_ != nullptr || !sends_.empty()); }

  // Both move what they can without blocking, and return true if they moved anything.
  bool write_some();
  bool read_some();

  // Gives up a send. True if part of it was written; then the connection is unusable.
  bool forget(const Operation& operation);
  // Sends a last frame, as far as the socket takes it, and then no more. `culprit` and `text` belong to a failure or a
  // mismatch.
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
  std::vector<Operation*>& sends_;  // the endpoint's list of incomplete sends to this peer, in order
  Events events_;
  bool open_ = true;
  bool said_goodbye_ = false;  // the peer has said goodbye

  // Output: the segment that is being written.
  Operation* sending_ = nullptr;
  FrameHeader out_header_{};
  std::size_t out_done_ = 0;  // bytes written of header and segment together
  Tag last_tag_ = 0;

  // Input: bytes read ahead, and the segment that they belong to.
  std::unique_ptr<std::byte[]> buffer_;
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
  FrameHeader in_header_{};
  Incoming* receiving_ = nullptr;
  std::size_t in_left_ = 0;  // bytes of the segment that are still missing
};

}  // namespace lockstep::transport::tcp
