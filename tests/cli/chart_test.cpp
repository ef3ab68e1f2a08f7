#include "lockstep/cli/comparison/chart.h"

#include <gmock/gmock.h>

#include <algorithm>

#include "lockstep/base/svg.h"

namespace lockstep::cli::comparison {
namespace {

using testing::HasSubstr;

std::size_t count(const std::string& text, const std::string& what) {
  std::size_t found = 0;
  for (auto at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++found;
  return found;
}

TEST(Chart, HasALineWithItsNameForEverySeries) {
  const std::string svg = time_against_size(
      "A & B", {{"2 ranks", {{"ring", {{8, 1}, {1 << 20, 100}}}, {"tree", {{8, 0.5}, {1 << 20, 200}}}}},
                {"4 ranks", {{"tree", {{8, 2}, {1 << 20, 2000}}}}}});
  EXPECT_TRUE(svg.starts_with("<svg "));
  EXPECT_TRUE(svg.ends_with("</svg>\n"));
  EXPECT_EQ(count(svg, "<polyline"), 3U);
  EXPECT_EQ(count(svg, ">tree</text>"), 2U);
  EXPECT_THAT(svg, HasSubstr("A &amp; B"));
  for (const char* label : {"100 ns", "1 us", "10 ms", "256K", "bytes (K, M are powers of 1024)", "time of a call"})
    EXPECT_THAT(svg, HasSubstr(label));
  EXPECT_EQ(svg.find("nan"), std::string::npos);
}

TEST(Chart, IsAsWideAsItsTitle) {
  const std::string title(300, 'm');
  const std::string svg = time_against_size(title, {{"p", {{"ring", {{8, 10}}}}}});
  const auto at = svg.find(" width=\"") + 8;
  EXPECT_GT(std::stod(svg.substr(at)), text_width(title, 17));
}

TEST(Chart, OnePointIsEnough) {
  const std::string svg = time_against_size("t", {{"p", {{"ring", {{8, 10}}}}}});
  EXPECT_EQ(svg.find("nan"), std::string::npos);
  EXPECT_EQ(svg.find("inf"), std::string::npos);
}

}  // namespace
}  // namespace lockstep::cli::comparison
