#include "lockstep/cli/comparison/timeline.h"

#include <fmt/format.h>

#include <algorithm>

#include "lockstep/base/svg.h"

namespace lockstep::cli::comparison {
namespace {

constexpr double kLeft = 120;  // for the names
constexpr double kWidth = 640;
constexpr double kTop = 72;
constexpr double kRow = 15;
constexpr double kHeading = 18;             // above the rows of a one
constexpr double kBelow = 40;               // below them, with the axis
constexpr const char* kDuring = "#009e73";  // the same colours as in chart.cpp
constexpr const char* kExposed = "#d55e00";
constexpr const char* kReady = "#0072b2";

double height_of(const Backward& one) {
  return (one.title.empty() ? 0 : kHeading) + kRow * static_cast<double>(one.travels.size()) + kBelow;
}

}  // namespace

std::string timeline(const std::string& title, const std::vector<Backward>& all) {
  double end = 1e-9, height = kTop + 4;
  for (const Backward& one : all) {
    end = std::max(end, one.end);
    for (const Travel& travel : one.travels) end = std::max(end, travel.ended);
    height += height_of(one);
  }
  const auto x = [&](double at) { return kLeft + kWidth * std::max(at, 0.0) / end; };

  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:.0f} {1:.0f}\" width=\"{0:.0f}\" height=\"{1:.0f}\" "
      "font-family=\"Helvetica, Arial, sans-serif\" font-size=\"11\">\n"
      "<title>{2}</title>\n<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n"
      "<text x=\"16\" y=\"26\" font-size=\"15\" font-weight=\"bold\" fill=\"#222222\">{2}</text>\n"
      "<text x=\"16\" y=\"46\" fill=\"#555555\"><tspan fill=\"{3}\">●</tspan> its gradient is ready   "
      "<tspan fill=\"{4}\">■</tspan> it travels while backward goes on   <tspan fill=\"{5}\">■</tspan> "
      "exposed</text>\n",
      std::max(kLeft + kWidth + 24, 32 + text_width(title, 15)), height, title, kReady, kDuring, kExposed);
  double y = kTop;
  const auto bar = [&](double from, double to, const char* colour) {
    if (to <= from) return;
    svg += fmt::format("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"9\" fill=\"{}\"/>\n", x(from), y,
                       std::max(x(to) - x(from), 1.0), colour);
  };
  for (const Backward& one : all) {
    if (!one.title.empty()) {
      svg += fmt::format("<text x=\"16\" y=\"{:.1f}\" font-weight=\"bold\" fill=\"#333333\">{}</text>\n", y + 4,
                         one.title);
      y += kHeading;
    }
    const double top = y, backward_end = one.end;
    for (const Travel& travel : one.travels) {
      svg += fmt::format("<text x=\"{:.0f}\" y=\"{:.1f}\" text-anchor=\"end\" fill=\"#333333\">{}</text>\n", kLeft - 10,
                         y + 9, travel.name);
      bar(travel.began, std::min(travel.ended, backward_end), kDuring);
      bar(std::max(travel.began, backward_end), travel.ended, kExposed);
      svg +=
          fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3\" fill=\"{}\"/>\n", x(travel.ready), y + 4.5, kReady);
      y += kRow;
    }
    svg += fmt::format(
        "<line x1=\"{0:.1f}\" y1=\"{1:.1f}\" x2=\"{0:.1f}\" y2=\"{2:.1f}\" stroke=\"#222222\" stroke-dasharray=\"4 "
        "3\"/>\n"
        "<text x=\"{0:.1f}\" y=\"{3:.1f}\" text-anchor=\"{4}\" fill=\"#222222\">end of backward, {5:.0f} us</text>\n"
        "<text x=\"{6:.0f}\" y=\"{3:.1f}\" fill=\"#555555\">0</text>\n",
        x(backward_end), top - 8, y + 6, y + 24, x(backward_end) > kLeft + kWidth - 90 ? "end" : "middle", backward_end,
        kLeft);
    y += kBelow;
  }
  return svg + "</svg>\n";
}

}  // namespace lockstep::cli::comparison
