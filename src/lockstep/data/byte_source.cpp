#include "lockstep/data/byte_source.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "lockstep/base/fd.h"
#include "lockstep/error.h"

namespace lockstep::data {
namespace {

constexpr std::size_t kBufferBytes = 1 << 16;
constexpr std::uint64_t kMostExpansion = 1032;  // deflate can't do better: 258 bytes from 2 bits

}  // namespace

struct ByteSource::State {
  std::filesystem::path path;
  std::string hint;
  Fd file;
  std::uint64_t file_bytes = 0;
  bool gzip = false;
  bool ended = false;  // the file has no more bytes
  std::array<std::uint8_t, kBufferBytes> buffer{};
  z_stream stream{};  // its input is a part of `buffer`, for raw files too
  bool in_member = true;

  [[noreturn]] void fail(const std::string& what) const {
    throw UsageError(fmt::format("{} {}", path.string(), what), hint);
  }

  void open();
  void fill();
  void copy(std::span<std::uint8_t>& into);
  void uncompress(std::span<std::uint8_t>& into);
};

void ByteSource::State::open() {
  // O_NONBLOCK, because opening a FIFO that nobody writes to would block.
  file = Fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file) fail(fmt::format("can't be read: {}", std::strerror(errno)));
  struct stat about {};
  if (fstat(file.get(), &about) != 0) fail(fmt::format("can't be read: {}", std::strerror(errno)));
  if (!S_ISREG(about.st_mode)) fail("is not a file");
  file_bytes = static_cast<std::uint64_t>(about.st_size);
  fill();
  gzip = stream.avail_in >= 2 && buffer[0] == 0x1f && buffer[1] == 0x8b;
  if (gzip && inflateInit2(&stream, 16 + MAX_WBITS) != Z_OK) fail("can't be uncompressed: no memory");
}

void ByteSource::State::fill() {
  if (stream.avail_in > 0 || ended) return;
  const ssize_t got = ::read(file.get(), buffer.data(), buffer.size());
  if (got < 0) fail(fmt::format("can't be read: {}", std::strerror(errno)));
  ended = got == 0;
  stream.next_in = buffer.data();
  stream.avail_in = static_cast<uInt>(got);
}

void ByteSource::State::copy(std::span<std::uint8_t>& into) {
  const std::size_t count = std::min<std::size_t>(into.size(), stream.avail_in);
  std::memcpy(into.data(), stream.next_in, count);
  stream.next_in += count;
  stream.avail_in -= static_cast<uInt>(count);
  into = into.subspan(count);
}

void ByteSource::State::uncompress(std::span<std::uint8_t>& into) {
  if (!in_member) {  // a file may consist of several gzip members
    inflateReset(&stream);
    in_member = true;
  }
  stream.next_out = into.data();
  stream.avail_out = static_cast<uInt>(std::min<std::size_t>(into.size(), 1U << 30));
  const uInt room = stream.avail_out;
  const int code = inflate(&stream, Z_NO_FLUSH);
  into = into.subspan(room - stream.avail_out);
  if (code == Z_STREAM_END)
    in_member = false;
  else if (code != Z_OK && code != Z_BUF_ERROR)
    fail(fmt::format("is damaged: {}", stream.msg != nullptr ? stream.msg : zError(code)));
}

ByteSource::ByteSource(std::filesystem::path path, std::string hint) : state_(std::make_unique<State>()) {
  state_->path = std::move(path);
  state_->hint = std::move(hint);
  state_->open();
}
ByteSource::ByteSource(ByteSource&&) noexcept = default;
ByteSource::~ByteSource() {
  if (state_ && state_->gzip) inflateEnd(&state_->stream);
}

std::size_t ByteSource::read(std::span<std::uint8_t> into) {
  const std::size_t wanted = into.size();
  while (!into.empty()) {
    state_->fill();
    if (state_->stream.avail_in == 0) {
      if (state_->gzip && state_->in_member) state_->fail("is truncated: its gzip stream has no end");
      break;
    }
    if (state_->gzip)
      state_->uncompress(into);
    else
      state_->copy(into);
  }
  return wanted - into.size();
}

std::uint64_t ByteSource::most() const {
  return state_->gzip ? state_->file_bytes * kMostExpansion : state_->file_bytes;
}

}  // namespace lockstep::data
