#include "lockstep/transport/tcp/connection.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace lockstep::transport::tcp {
namespace {

constexpr std::size_t kBufferBytes = std::size_t{64} << 10;
constexpr std::size_t kMaxText = 4096;
constexpr std::uint64_t kMaxMessage = std::uint64_t{1} << 46;  // 64 TiB; a larger size is not a message but noise

}  // namespace

Connection::Connection(Fd fd, std::size_t segment_bytes, Mailbox& mailbox, std::vector<Operation*>& sends,
                       Events events)
    : fd_(std::move(fd)),
      segment_bytes_(segment_bytes),
      mailbox_(mailbox),
      sends_(sends),
      events_(std::move(events)),
      buffer_(std::make_unique_for_overwrite<std::byte[]>(kBufferBytes)) {}

// --- output ---

// The message whose turn it is. A message that is under way goes on if its tag is not that of the last segment.
// Otherwise the oldest message with another tag than the last segment begins. If all messages have that tag, it is the
// oldest one. A message under way is always the oldest with its tag, and at most two are under way.
Operation* Connection::next_send() {
  Operation* begins = nullptr;
  for (Operation* operation : sends_) {
    if (operation->tag == last_tag_) continue;
    if (operation->moved > 0) return operation;
    if (begins == nullptr) begins = operation;
  }
  return begins != nullptr ? begins : sends_.front();
}

void Connection::begin_segment() {
  sending_ = sends_.size() == 1 ? sends_.front() : next_send();
  last_tag_ = sending_->tag;
  out_header_ = {FrameHeader::segment, sending_->tag, sending_->bytes,
                 std::min(segment_bytes_, sending_->bytes - sending_->moved), sending_->label};
  out_done_ = 0;
}

void Connection::end_segment() {
  sending_->moved += out_header_.segment_bytes;
  Operation* operation = std::exchange(sending_, nullptr);
  if (operation->moved < operation->bytes) return;
  std::erase(sends_, operation);
  events_.sent(*operation);
}

bool Connection::write_some() {
  bool moved = false;
  while (open_ && (sending_ != nullptr || !sends_.empty())) {
    if (sending_ == nullptr) begin_segment();
    const std::size_t header_left = sizeof out_header_ - std::min(out_done_, sizeof out_header_);
    const std::size_t segment_done = out_done_ - (sizeof out_header_ - header_left);
    iovec parts[2] = {{reinterpret_cast<char*>(&out_header_) + (sizeof out_header_ - header_left), header_left},
                      {sending_->data + sending_->moved + segment_done, out_header_.segment_bytes - segment_done}};
    msghdr message{};
    message.msg_iov = header_left > 0 ? parts : parts + 1;
    message.msg_iovlen = header_left > 0 ? 2 : 1;
    const std::size_t asked = header_left + parts[1].iov_len;
    const ssize_t sent = ::sendmsg(fd_.get(), &message, MSG_NOSIGNAL);
    if (sent < 0) {
      if (errno == EINTR) continue;
      if (errno != EAGAIN) lose_after_reading(errno);
      return moved;
    }
    moved = true;
    out_done_ += static_cast<std::size_t>(sent);
    if (out_done_ == sizeof out_header_ + out_header_.segment_bytes) end_segment();
    if (static_cast<std::size_t>(sent) < asked) return moved;  // the socket is full
  }
  return moved;
}

bool Connection::forget(const Operation& operation) {
  std::erase(sends_, &operation);
  const bool in_hand = sending_ == &operation;
  if (in_hand) sending_ = nullptr;
  if (operation.moved == 0 && !(in_hand && out_done_ > 0)) return false;
  open_ = false;  // the peer has part of a message that will never be complete
  ::shutdown(fd_.get(), SHUT_RDWR);
  return true;
}

void Connection::say_last(FrameHeader::Kind kind, Rank culprit, const std::string& text) {
  if (!open_ || sending_ != nullptr) return;  // a frame cannot begin in the middle of a segment; closing tells enough
  const FrameHeader header{kind, static_cast<Tag>(culprit), text.size(), text.size(), {}};
  std::string frame(reinterpret_cast<const char*>(&header), sizeof header);
  frame += text;
  [[maybe_unused]] const auto sent = ::send(fd_.get(), frame.data(), frame.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  ::shutdown(fd_.get(), SHUT_WR);
  // If bytes are unread when a socket is closed, the kernel resets the connection, and the peer would lose what we sent
  // last. So read what is there.
  while (::recv(fd_.get(), buffer_.get(), kBufferBytes, MSG_DONTWAIT) > 0) {
  }
}

// --- input ---

bool Connection::read_some() {
  if (!open_) return false;
  // If a message is under way, read its bytes straight into their destination, and whatever follows into the buffer.
  std::byte* destination = receiving_ != nullptr && in_left_ > 0 ? receiving_->destination() : nullptr;
  if (begin_ == end_) begin_ = end_ = 0;
  const bool direct = destination != nullptr && begin_ == end_;
  // Behind the segment, read only the next header. What comes after the header would be copied twice.
  const std::size_t ahead = direct ? sizeof(FrameHeader) : kBufferBytes - end_;
  iovec parts[2] = {{destination, in_left_}, {buffer_.get() + end_, ahead}};
  msghdr message{};
  message.msg_iov = direct ? parts : parts + 1;
  message.msg_iovlen = direct ? 2 : 1;
  ssize_t got = 0;
  do {
    got = ::recvmsg(fd_.get(), &message, MSG_DONTWAIT);
  } while (got < 0 && errno == EINTR);
  if (got < 0) {
    if (errno != EAGAIN) lose(std::strerror(errno), errno);
    return false;
  }
  if (got == 0) {
    lose("it closed the connection");
    return false;
  }
  std::size_t bytes = static_cast<std::size_t>(got);
  if (direct) {
    const std::size_t taken = std::min(bytes, in_left_);
    in_left_ -= taken;
    bytes -= taken;
    Incoming& target = *receiving_;
    if (in_left_ == 0) receiving_ = nullptr;
    events_.arrived(target, taken);
  }
  end_ += bytes;
  parse();
  return true;
}

// Works through the buffer, which holds headers and the segments that came with them.
void Connection::parse() {
  while (open_) {
    if (receiving_ != nullptr) {
      const std::size_t taken = std::min(in_left_, end_ - begin_);
      if (std::byte* destination = receiving_->destination(); destination != nullptr && taken > 0)
        std::memcpy(destination, buffer_.get() + begin_, taken);
      begin_ += taken;
      in_left_ -= taken;
      Incoming& target = *receiving_;
      if (in_left_ == 0) receiving_ = nullptr;
      if (taken > 0 || in_left_ == 0) events_.arrived(target, taken);
      if (in_left_ > 0) return;
    }
    if (end_ - begin_ < sizeof in_header_) break;
    std::memcpy(&in_header_, buffer_.get() + begin_, sizeof in_header_);
    if (in_header_.kind == FrameHeader::failure ||
        in_header_.kind == FrameHeader::mismatch) {  // its text is short, so wait until all of it is in the buffer
      if (in_header_.segment_bytes > kMaxText) return lose("it sent a frame that makes no sense", EPROTO);
      if (end_ - begin_ < sizeof in_header_ + in_header_.segment_bytes) break;
    }
    begin_ += sizeof in_header_;
    consume_header();
  }
  // What is left is the beginning of a header, or of the text of a failure. Make room behind it.
  std::memmove(buffer_.get(), buffer_.get() + begin_, end_ - begin_);
  end_ -= begin_;
  begin_ = 0;
}

void Connection::consume_header() {
  switch (in_header_.kind) {
    case FrameHeader::segment:
      if (in_header_.total > kMaxMessage || in_header_.segment_bytes > in_header_.total)
        return lose("it sent a frame that makes no sense", EPROTO);
      receiving_ = &mailbox_.message_for(in_header_.tag, in_header_.total, in_header_.label);
      if (in_header_.segment_bytes > receiving_->total - receiving_->arrived)
        return lose("it sent more of a message than it announced");
      in_left_ = in_header_.segment_bytes;
      return;
    case FrameHeader::goodbye:
      said_goodbye_ = true;
      return;  // all that it sent before has arrived; its end of stream follows
    case FrameHeader::failure:
    case FrameHeader::mismatch: {
      const std::string why(reinterpret_cast<const char*>(buffer_.get() + begin_), in_header_.segment_bytes);
      begin_ += in_header_.segment_bytes;
      open_ = false;
      return events_.failed(
          {static_cast<Rank>(in_header_.tag), why,
           in_header_.kind == FrameHeader::mismatch ? Transport::Ending::mismatch : Transport::Ending::failed});
    }
    default:
      return lose("it sent a frame that makes no sense", EPROTO);
  }
}

// Called when writing failed. What the peer sent last, perhaps its goodbye, may still be there to be read.
void Connection::lose_after_reading(int error) {
  while (read_some()) {
  }
  lose(std::strerror(error), error);
}

void Connection::lose(const std::string& why, int error) {
  if (!open_) return;
  open_ = false;
  receiving_ = nullptr;
  if (said_goodbye_)
    events_.left();
  else
    events_.lost(why, error);
}

}  // namespace lockstep::transport::tcp
