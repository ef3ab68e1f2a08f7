// The bytes of a file, raw or .gz.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>

namespace lockstep::data {

// Reads a file from its beginning to its end, and uncompresses it if it starts like a gzip file, whatever its name.
// Only one thread may use it. Throws UsageError, which names the file, if it can't be read or is damaged: a truncated
// or damaged stream, a wrong checksum, or bytes after its end.
class ByteSource {
 public:
  // `hint` is the advice that errors give.
  ByteSource(std::filesystem::path path, std::string hint);
  ByteSource(ByteSource&&) noexcept;
  ~ByteSource();

  // Fills `into` as far as there are bytes, and returns their number. If it is less than into.size(), the end was
  // reached.
  std::size_t read(std::span<std::uint8_t> into);

  // An upper bound for the number of all bytes: the file's size or, for gzip, the most to which a file of that size can
  // expand.
  std::uint64_t most() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep::data
