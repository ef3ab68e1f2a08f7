#include "lockstep/launch/lines.h"

#include <gtest/gtest.h>

namespace lockstep::launch {
namespace {

using Lines = std::vector<std::string>;

TEST(LinePrefixer, PutsThePrefixBeforeEachLine) {
  LinePrefixer lines("[rank 2] ");
  EXPECT_EQ(lines.feed("one\ntwo\n"), "[rank 2] one\n[rank 2] two\n");
  EXPECT_EQ(lines.feed("\n"), "[rank 2] \n");
  EXPECT_EQ(lines.finish(), "");
}

TEST(LinePrefixer, HoldsAPartialLineBack) {
  LinePrefixer lines("> ");
  EXPECT_EQ(lines.feed("ab"), "");
  EXPECT_EQ(lines.feed(""), "");
  EXPECT_EQ(lines.feed("c\nd"), "> abc\n");
  EXPECT_EQ(lines.finish(), "> d\n");
  EXPECT_EQ(lines.finish(), "");
}

TEST(LinePrefixer, CarriesAnyBytes) {
  LinePrefixer lines("> ");
  const std::string bytes("\0\xff\x01 x", 5);
  EXPECT_EQ(lines.feed(bytes + "\n"), "> " + bytes + "\n");
}

TEST(LinePrefixer, ProgressBarsAreLinesOfTheirOwn) {
  LinePrefixer lines("> ");
  EXPECT_EQ(lines.feed("10%\r20%\r"), "> 10%\n> 20%\n");
  EXPECT_EQ(lines.feed("\r30%"), "");
  EXPECT_EQ(lines.feed("\r40%\n"), "> 30%\n> 40%\n");
  EXPECT_EQ(lines.feed("dos\r\nline\r"), "> dos\n> line\n");
  EXPECT_EQ(lines.feed("\n\n"), "> \n") << "the first newline belongs to the carriage return";
  EXPECT_EQ(lines.finish(), "");
}

TEST(LinePrefixer, CutsALongLine) {
  LinePrefixer lines("> ", 4);
  EXPECT_EQ(lines.feed("abcdefghij\n"), "> abcd\n> efgh\n> ij\n");
  EXPECT_EQ(lines.feed("abcd\n"), "> abcd\n") << "as long as it may be is not too long";
  EXPECT_EQ(lines.feed("abcd"), "");
  EXPECT_EQ(lines.feed("\n"), "> abcd\n");
  EXPECT_EQ(lines.feed("abcd"), "");
  EXPECT_EQ(lines.feed("e"), "> abcd\n");
  EXPECT_EQ(lines.finish(), "> e\n");
}

TEST(LinePrefixer, TheSameWhateverThePieces) {
  std::string text;
  for (int i = 0; i < 200; ++i)
    text += std::string(static_cast<std::size_t>(i * 7 % 23), static_cast<char>('a' + i % 26)) + "\n";
  LinePrefixer whole("> ", 10);
  const std::string expected = whole.feed(text) + whole.finish();
  for (std::size_t piece = 1; piece < 40; ++piece) {
    LinePrefixer lines("> ", 10);
    std::string got;
    for (std::size_t i = 0; i < text.size(); i += piece) got += lines.feed(text.substr(i, piece));
    EXPECT_EQ(got + lines.finish(), expected) << "pieces of " << piece;
  }
}

TEST(LinePrefixer, RemembersTheLastLines) {
  LinePrefixer lines("> ");
  EXPECT_EQ(lines.last_lines(), Lines{});
  lines.feed("1\n2\n\n3\n4\n  \n5\n6\nseven");
  EXPECT_EQ(lines.last_lines(), (Lines{"2", "3", "4", "5", "6"}));
  lines.finish();
  EXPECT_EQ(lines.last_lines(), (Lines{"3", "4", "5", "6", "seven"}));
  lines.feed(std::string(10'000, 'x') + "\n");
  EXPECT_LT(lines.last_lines().back().size(), 1000U);
}

}  // namespace
}  // namespace lockstep::launch
