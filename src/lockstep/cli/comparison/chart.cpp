#include "lockstep/cli/comparison/chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "lockstep/base/environment.h"
#include "lockstep/base/svg.h"

namespace lockstep::cli::comparison {
namespace {

// Okabe and Ito's colours, which are distinct even for people who can't tell red from green.
constexpr const char* kColours[] = {"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000"};

constexpr double kWidth = 420;  // of a panel's plot, in pixels
constexpr double kHeight = 380;
constexpr double kLeft = 76;    // for the labels of the axis
constexpr double kRight = 132;  // for the names at the ends of the lines
constexpr double kTop = 78;
constexpr double kBottom = 62;
constexpr double kLabelHeight = 15;

std::string escaped(const std::string& text) {
  std::string result;
  for (const char c : text) result += c == '<' ? "&lt;" : c == '>' ? "&gt;" : c == '&' ? "&amp;" : std::string(1, c);
  return result;
}

std::string brief_time(double microseconds) {
  if (microseconds >= 1e6) return fmt::format("{:g} s", microseconds / 1e6);
  if (microseconds >= 1e3) return fmt::format("{:g} ms", microseconds / 1e3);
  if (microseconds >= 1) return fmt::format("{:g} us", microseconds);
  return fmt::format("{:g} ns", microseconds * 1e3);
}

// Maps a value to a place on a logarithmic axis.
struct Axis {
  double low = std::numeric_limits<double>::max();
  double high = 0;
  double length = 0;

  void take(double value) {
    low = std::min(low, value);
    high = std::max(high, value);
  }
  double operator()(double value) const {
    return high > low ? length * std::log(value / low) / std::log(high / low) : length / 2;
  }
};

class Drawing {
 public:
  explicit Drawing(const std::vector<Panel>& panels) : panels_(panels) {
    for (const Panel& panel : panels)
      for (const Series& series : panel.series) {
        if (std::find(names_.begin(), names_.end(), series.name) == names_.end()) names_.push_back(series.name);
        for (const auto& [bytes, time] : series.points) {
          x_.take(bytes);
          y_.take(time);
        }
      }
    y_.low = std::pow(10, std::floor(std::log10(y_.low)));
    y_.high = std::pow(10, std::ceil(std::log10(std::max(y_.high, y_.low * 10))));
    x_.length = kWidth;
    y_.length = kHeight;
  }

  std::string svg(const std::string& title) {
    const double step = kLeft + kWidth + kRight;
    const double width = std::max(step * static_cast<double>(panels_.size()), kLeft + text_width(title, 17) + kLeft);
    const double height = kTop + kHeight + kBottom;
    text_ = fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:.0f} {1:.0f}\" width=\"{0:.0f}\" "
        "height=\"{1:.0f}\" font-family=\"Helvetica, Arial, sans-serif\" font-size=\"12\">\n"
        "<title>{2}</title>\n<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n",
        width, height, escaped(title));
    label(kLeft, 30, title, "start", "font-size=\"17\" font-weight=\"bold\" fill=\"#222222\"");
    for (std::size_t i = 0; i < panels_.size(); ++i) draw(panels_[i], kLeft + step * static_cast<double>(i));
    return text_ + "</svg>\n";
  }

 private:
  void label(double x, double y, const std::string& text, const char* anchor, const std::string& style) {
    text_ += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\" {}>{}</text>\n", x, y, anchor, style,
                         escaped(text));
  }

  void draw(const Panel& panel, double left) {
    label(left, kTop - 14, panel.title, "start", "font-size=\"14\" fill=\"#222222\"");
    const char* grid = "stroke=\"#e2e2e2\" stroke-width=\"1\"";
    const std::string grey = "fill=\"#555555\"";
    for (double time = y_.low; time <= y_.high * 1.001; time *= 10) {
      const double y = kTop + kHeight - y_(time);
      text_ += fmt::format("<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" {}/>\n", left, y,
                           left + kWidth, y, grid);
      label(left - 8, y + 4, brief_time(time), "end", grey);
    }
    const int doublings = static_cast<int>(std::ceil(std::log2(std::max(x_.high / x_.low, 1.0)) - 1e-9));
    const int every = std::max(1, (doublings + 6) / 7);  // so that labels do not touch
    for (int i = 0; i <= doublings; i += every) {
      const double bytes = x_.low * std::pow(2, i);
      const double x = left + x_(bytes);
      text_ += fmt::format("<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" {}/>\n", x, kTop, x,
                           kTop + kHeight, grid);
      label(x, kTop + kHeight + 18, brief_bytes(bytes), "middle", grey);
    }
    text_ += fmt::format(
        "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" fill=\"none\" stroke=\"#888888\"/>\n", left,
        kTop, kWidth, kHeight);
    label(left + kWidth / 2, kTop + kHeight + 42, "bytes (K, M are powers of 1024)", "middle", grey);
    label(0, 0, "time of a call", "middle",
          fmt::format("{} transform=\"translate({:.1f},{:.1f}) rotate(-90)\"", grey, left - 60, kTop + kHeight / 2));
    draw_lines(panel, left);
  }

  void draw_lines(const Panel& panel, double left) {
    struct End {
      double y;
      double wanted;
      const Series* series;
    };
    std::vector<End> ends;
    for (const Series& series : panel.series) {
      if (series.points.empty()) continue;
      std::string path;
      std::string dots;
      for (const auto& [bytes, time] : series.points) {
        const double x = left + x_(bytes);
        const double y = kTop + kHeight - y_(time);
        path += fmt::format("{}{:.1f},{:.1f}", path.empty() ? "" : " ", x, y);
        dots += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3\" fill=\"{}\"/>\n", x, y, colour(series));
      }
      text_ += fmt::format("<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"2\"/>\n{}", path,
                           colour(series), dots);
      const double y = kTop + kHeight - y_(series.points.back().second);
      ends.push_back({y, y, &series});
    }
    // Names stand at the ends of their lines, and are moved apart if they would cover each other.
    std::sort(ends.begin(), ends.end(), [](const End& a, const End& b) { return a.wanted < b.wanted; });
    for (std::size_t i = 1; i < ends.size(); ++i) ends[i].y = std::max(ends[i].y, ends[i - 1].y + kLabelHeight);
    double floor = kTop + kHeight;
    for (auto end = ends.rbegin(); end != ends.rend(); ++end) {
      end->y = std::min(end->y, floor);
      floor = end->y - kLabelHeight;
    }
    for (const End& end : ends) {
      const double x = left + kWidth;
      text_ += fmt::format("<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"{}\"/>\n", x + 3,
                           end.wanted, x + 12, end.y, colour(*end.series));
      label(x + 15, end.y + 4, end.series->name, "start", fmt::format("fill=\"{}\"", colour(*end.series)));
    }
  }

  const char* colour(const Series& series) const {
    const auto place = std::find(names_.begin(), names_.end(), series.name) - names_.begin();
    return kColours[static_cast<std::size_t>(place) % std::size(kColours)];
  }

  const std::vector<Panel>& panels_;
  std::vector<std::string> names_;
  Axis x_;
  Axis y_;
  std::string text_;
};

}  // namespace

std::string time_against_size(const std::string& title, const std::vector<Panel>& panels) {
  return Drawing(panels).svg(title);
}

}  // namespace lockstep::cli::comparison
