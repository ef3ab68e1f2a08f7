// IDX files, whole and damaged.
#include "lockstep/data/idx.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "files.h"
#include "lockstep/error.h"

namespace lockstep::data {
namespace {

using ::testing::HasSubstr;

// The text of the UsageError, which names the file and the hint.
std::string refusal(const std::filesystem::path& path, int dimensions) {
  try {
    read_idx(path, dimensions, "the hint");
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(), HasSubstr(path.string() + " "));
    EXPECT_THAT(error.what(), HasSubstr("; try: the hint"));
    return error.what();
  }
  ADD_FAILURE() << "nothing was refused";
  return "";
}

void expect_counting(const Idx& idx, const std::vector<std::int64_t>& shape) {
  EXPECT_EQ(idx.shape, shape);
  std::size_t count = 1;
  for (const std::int64_t size : shape) count *= static_cast<std::size_t>(size);
  ASSERT_EQ(idx.values.size(), count);
  for (std::size_t i = 0; i < count; ++i) ASSERT_EQ(idx.values[i], i % 256) << "at " << i;
}

TEST(Idx, ReadsRawAndGzipWhateverTheName) {
  const Folder folder;
  expect_counting(read_idx(folder.write("a", idx_file({5, 3, 2})), 3), {5, 3, 2});
  expect_counting(read_idx(folder.write("b.gz", gzipped(idx_file({5, 3, 2}))), 3), {5, 3, 2});
  expect_counting(read_idx(folder.write("c.gz", idx_file({7})), 1), {7});
  expect_counting(read_idx(folder.write("d", gzipped(idx_file({7}))), 1), {7});
}

TEST(Idx, ReadsMoreThanItsBuffers) {
  const Folder folder;
  expect_counting(read_idx(folder.write("a", idx_file({3000, 28, 28})), 3), {3000, 28, 28});
  expect_counting(read_idx(folder.write("b", gzipped(idx_file({3000, 28, 28}))), 3), {3000, 28, 28});
}

TEST(Idx, ReadsGzipFilesOneAfterTheOther) {
  const Folder folder;
  const std::string whole = idx_file({1000});
  expect_counting(read_idx(folder.write("a", gzipped(whole.substr(0, 300)) + gzipped(whole.substr(300))), 1), {1000});
}

TEST(Idx, ReadsNoValues) {
  const Folder folder;
  expect_counting(read_idx(folder.write("a", idx_file({0, 28, 28})), 3), {0, 28, 28});
}

TEST(Idx, RefusesWhatIsNoFile) {
  const Folder folder;
  EXPECT_THAT(refusal(folder / "missing", 1), HasSubstr("No such file"));
  EXPECT_THAT(refusal(folder.path(), 1), HasSubstr("is not a file"));
  const auto fifo = folder / "fifo";
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  EXPECT_THAT(refusal(fifo, 1), HasSubstr("is not a file"));
}

TEST(Idx, RefusesAnotherFormatTypeOrShape) {
  const Folder folder;
  EXPECT_THAT(refusal(folder.write("a", "<html>Not found"), 1), HasSubstr("starts with 3c 68"));
  EXPECT_THAT(refusal(folder.write("b", ""), 1), HasSubstr("too short to be an IDX file"));
  EXPECT_THAT(refusal(folder.write("c", idx_header({1}, 0x0D) + "1234"), 1), HasSubstr("type 0x0d"));
  EXPECT_THAT(refusal(folder.write("d", idx_file({2, 2})), 1), HasSubstr("has 2 dimensions, but 1 are needed"));
  EXPECT_THAT(refusal(folder.write("e", idx_file({2})), 3), HasSubstr("has 1 dimensions, but 3 are needed"));
}

// Wherever a file is cut, that is noticed.
TEST(Idx, RefusesEveryTruncation) {
  const Folder folder;
  for (const bool gzip : {false, true}) {
    const std::string whole = gzip ? gzipped(idx_file({20, 2})) : idx_file({20, 2});
    for (std::size_t length = 0; length < whole.size(); ++length) {
      SCOPED_TRACE(fmt::format("gzip {}, {} of {} bytes", gzip, length, whole.size()));
      refusal(folder.write("a", whole.substr(0, length)), 2);
    }
  }
  EXPECT_THAT(refusal(folder.write("b", idx_file({20}).substr(0, 9)), 1), HasSubstr("20 values"));
  const std::string gz = gzipped(idx_file({20}));
  EXPECT_THAT(refusal(folder.write("c", gz.substr(0, gz.size() - 1)), 1), HasSubstr("truncated"));
  EXPECT_THAT(refusal(folder.write("d", gzipped(idx_file({20}).substr(0, 9))), 1), HasSubstr("ends after 1"));
}

TEST(Idx, RefusesBytesAfterTheEnd) {
  const Folder folder;
  EXPECT_THAT(refusal(folder.write("a", idx_file({20}) + "x"), 1), HasSubstr("but has more bytes"));
  EXPECT_THAT(refusal(folder.write("b", gzipped(idx_file({20}) + "x")), 1), HasSubstr("but has more bytes"));
  EXPECT_THAT(refusal(folder.write("c", gzipped(idx_file({20})) + "xyz"), 1), HasSubstr("is damaged"));
}

// A bit that flips in the compressed values or the checksum is noticed, unless it stood for nothing.
TEST(Idx, NeverReadsOtherValuesFromDamagedGzip) {
  const Folder folder;
  const std::string whole = gzipped(idx_file({200}));
  std::size_t refused = 0;
  for (std::size_t at = 10; at < whole.size(); ++at) {  // after gzip's own header, where the time has no checksum
    std::string bytes = whole;
    bytes[at] ^= 0x10;
    SCOPED_TRACE(at);
    const auto path = folder.write("a", bytes);
    try {
      expect_counting(read_idx(path, 1), {200});
    } catch (const UsageError& error) {
      EXPECT_THAT(error.what(), HasSubstr(path.string()));
      ++refused;
    }
  }
  EXPECT_GE(refused, whole.size() - 15);
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

std::size_t address_space() {
  std::ifstream file("/proc/self/statm");
  std::size_t pages = 0;
  file >> pages;
  return pages * 4096;
}

// With so little room a huge allocation would be a bad_alloc. Not under sanitizers, which need it.
class LittleMemory {
 public:
  LittleMemory() {
    getrlimit(RLIMIT_AS, &before_);
    rlimit limit = before_;
    limit.rlim_cur = address_space() + (std::size_t{256} << 20);
    if (!kSanitized) setrlimit(RLIMIT_AS, &limit);
  }
  LittleMemory(const LittleMemory&) = delete;
  ~LittleMemory() { setrlimit(RLIMIT_AS, &before_); }

 private:
  rlimit before_{};
};

TEST(Idx, TakesNoMemoryForValuesThatAreNotThere) {
  const Folder folder;
  const LittleMemory limit;
  const std::uint32_t most = 0xffffffff;
  for (const auto& sizes : std::vector<std::vector<std::uint32_t>>{
           {most, 1, 1}, {most, most, 1}, {most, most, most}, {0x80000000, 0x80000000, 4}, {1 << 30, 1, 1}}) {
    SCOPED_TRACE(fmt::format("{}", fmt::join(sizes, " x ")));
    EXPECT_THAT(refusal(folder.write("a", idx_header(sizes) + "abc"), 3), HasSubstr("too short"));
    EXPECT_THAT(refusal(folder.write("b", gzipped(idx_header(sizes) + "abc")), 3), HasSubstr("too short"));
  }
  // 2 MiB that don't compress could hold 2 GiB that do: only the values can tell.
  std::string noise(2 << 20, '\0');
  std::uint32_t state = 1;
  for (char& byte : noise) byte = static_cast<char>((state = state * 1664525 + 1013904223) >> 24);
  EXPECT_THAT(refusal(folder.write("c", gzipped(idx_header({1 << 30}) + noise)), 1), HasSubstr("ends after 2097152"));
}

}  // namespace
}  // namespace lockstep::data
