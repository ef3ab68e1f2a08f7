// The bytes of a file, raw or .gz.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>

namespace lockstep::data {

// Reads from the beginning to the end, uncompressing when the file starts as gzip does, whatever its name. All damage
// is a UsageError that names the file: a truncated or damaged stream, a wrong checksum, bytes after its end.
class ByteSource {
 public:
  // `hint` is what an error advises.
  ByteSource(std::filesystem::path path, std::string hint);
  ByteSource(ByteSource&&) noexcept;
  ~ByteSource();

  // Fills `into` as far as there are bytes; less than its size means that the end was reached.
  std::size_t read(std::span<std::uint8_t> into);

  // There can't be more bytes in all than this: the file's size, or what so much gzip can expand to.
  std::uint64_t most() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep::data
