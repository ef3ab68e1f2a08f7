#include "lockstep/data/idx.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "lockstep/data/byte_source.h"
#include "lockstep/error.h"

namespace lockstep::data {
namespace {

constexpr std::uint8_t kUnsignedBytes = 0x08;
constexpr std::size_t kFirstBytes = 1 << 20;

class Reader {
 public:
  Reader(const std::filesystem::path& path, const std::string& hint)
      : path_(path.string()), hint_(hint), source_(path, hint) {}

  void check_start(int dimensions) {
    std::array<std::uint8_t, 4> start{};
    if (source_.read(start) < start.size()) fail("is too short to be an IDX file");
    if (start[0] != 0 || start[1] != 0)
      fail(fmt::format("is not an IDX file: it starts with {:02x} {:02x} and not with 00 00", start[0], start[1]));
    if (start[2] != kUnsignedBytes)
      fail(fmt::format("has values of type 0x{:02x}, but only unsigned bytes (0x08) are read", start[2]));
    if (start[3] != dimensions) fail(fmt::format("has {} dimensions, but {} are needed", start[3], dimensions));
  }

  std::vector<std::int64_t> read_shape(int dimensions) {
    std::vector<std::int64_t> shape;
    for (int i = 0; i < dimensions; ++i) {
      std::array<std::uint8_t, 4> size{};
      if (source_.read(size) < size.size()) fail("ends in the middle of its sizes");
      shape.push_back(std::int64_t{size[0]} << 24 | size[1] << 16 | size[2] << 8 | size[3]);
    }
    return shape;
  }

  std::vector<std::uint8_t> read_values(const std::vector<std::int64_t>& shape) {
    const std::string sizes = fmt::format("{}", fmt::join(shape, " x "));
    std::uint64_t count = 1;
    for (const std::int64_t size : shape) {
      const auto factor = static_cast<std::uint64_t>(size);
      if (factor != 0 && count > std::numeric_limits<std::uint64_t>::max() / factor) fail_too_short(sizes);
      count *= factor;
    }
    if (count > source_.most()) fail_too_short(sizes);
    std::vector<std::uint8_t> values;
    // A .gz file may still claim a thousand times its size, so memory grows as bytes arrive.
    while (values.size() < count) {
      const std::size_t have = values.size();
      values.resize(std::min<std::uint64_t>(count, std::max(kFirstBytes, 2 * have)));
      const std::size_t got = source_.read(std::span(values).subspan(have));
      if (have + got < values.size()) fail_too_short(sizes, have + got);
    }
    std::array<std::uint8_t, 1> more{};
    if (source_.read(more) > 0) fail(fmt::format("says that it has {} values, but has more bytes", sizes));
    return values;
  }

 private:
  [[noreturn]] void fail(const std::string& what) const { throw UsageError(fmt::format("{} {}", path_, what), hint_); }
  [[noreturn]] void fail_too_short(const std::string& sizes) const {
    fail(fmt::format("says that it has {} values, but is too short for them", sizes));
  }
  [[noreturn]] void fail_too_short(const std::string& sizes, std::uint64_t got) const {
    fail(fmt::format("says that it has {} values, but ends after {}", sizes, got));
  }

  std::string path_, hint_;
  ByteSource source_;
};

}  // namespace

Idx read_idx(const std::filesystem::path& path, int dimensions, const std::string& hint) {
  Reader reader(path, hint);
  reader.check_start(dimensions);
  Idx idx;
  idx.shape = reader.read_shape(dimensions);
  idx.values = reader.read_values(idx.shape);
  return idx;
}

}  // namespace lockstep::data
