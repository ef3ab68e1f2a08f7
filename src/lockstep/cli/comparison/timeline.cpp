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
constexpr const char* kDuring = "#009e73";  // the same colours as in chart.cpp
constexpr const char* kExposed = "#d55e00";
constexpr const char* kReady = "#0072b2";

}  // namespace

std::string timeline(const std::string& title, const std::vector<Travel>& travels, double backward_end) {
  double end = backward_end;
  for (const Travel& travel : travels) end = std::max(end, travel.ended);
  const auto x = [&](double at) { return kLeft + kWidth * std::max(at, 0.0) / std::max(end, 1e-9); };
  const double height = kTop + kRow * static_cast<double>(travels.size()) + 44;
  const double floor = height - 34;

  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:.0f} {1:.0f}\" width=\"{0:.0f}\" height=\"{1:.0f}\" "
      "font-family=\"Helvetica, Arial, sans-serif\" font-size=\"11\">\n"
      "<title>{2}</title>\n<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n"
      "<text x=\"16\" y=\"26\" font-size=\"15\" font-weight=\"bold\" fill=\"#222222\">{2}</text>\n"
      "<text x=\"16\" y=\"46\" fill=\"#555555\"><tspan fill=\"{3}\">●</tspan> its gradient is ready   "
      "<tspan fill=\"{4}\">■</tspan> it travels while backward goes on   <tspan fill=\"{5}\">■</tspan> "
      "exposed</text>\n",
      std::max(kLeft + kWidth + 24, 32 + text_width(title, 15)), height, title, kReady, kDuring, kExposed);
  const auto bar = [&](double from, double to, double y, const char* colour) {
    if (to <= from) return;
    svg += fmt::format("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"9\" fill=\"{}\"/>\n", x(from), y,
                       std::max(x(to) - x(from), 1.0), colour);
  };
  for (std::size_t i = 0; i < travels.size(); ++i) {
    const Travel& travel = travels[i];
    const double y = kTop + kRow * static_cast<double>(i);
    svg += fmt::format("<text x=\"{:.0f}\" y=\"{:.1f}\" text-anchor=\"end\" fill=\"#333333\">{}</text>\n", kLeft - 10,
                       y + 9, travel.parameter);
    bar(travel.began, std::min(travel.ended, backward_end), y, kDuring);
    bar(std::max(travel.began, backward_end), travel.ended, y, kExposed);
    svg += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3\" fill=\"{}\"/>\n", x(travel.ready), y + 4.5, kReady);
  }
  svg += fmt::format(
      "<line x1=\"{0:.1f}\" y1=\"{1:.1f}\" x2=\"{0:.1f}\" y2=\"{2:.1f}\" stroke=\"#222222\" stroke-dasharray=\"4 "
      "3\"/>\n"
      "<text x=\"{0:.1f}\" y=\"{3:.1f}\" text-anchor=\"{4}\" fill=\"#222222\">end of backward, {5:.0f} us</text>\n"
      "<text x=\"{6:.0f}\" y=\"{3:.1f}\" fill=\"#555555\">0</text>\n",
      x(backward_end), kTop - 8, floor, floor + 18, x(backward_end) > kLeft + kWidth - 90 ? "end" : "middle",
      backward_end, kLeft);
  return svg + "</svg>\n";
}

}  // namespace lockstep::cli::comparison
