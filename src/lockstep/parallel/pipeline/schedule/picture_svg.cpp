#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <set>

#include "lockstep/base/svg.h"
#include "lockstep/parallel/pipeline/schedule/picture.h"

namespace lockstep::pipeline {
namespace {

constexpr double kLeft = 64;  // room for the ranks' names
constexpr double kRight = 110;
constexpr double kTop = 76;
constexpr double kBottom = 40;
constexpr double kRow = 40;
constexpr double kBox = 32;
constexpr double kMaxWidth = 3000;   // of the plot, in pixels
constexpr double kLetter = 7.5;      // about the width of a character
constexpr double kLeastWidth = 420;  // so that the legend fits

struct Look {
  Kind kind;
  const char* colour;  // palette of Okabe and Ito, for people who cannot tell red from green
  const char* words;
};
constexpr Look kLooks[] = {
    {Kind::F, "#0072b2", "F forward"},
    {Kind::B, "#d55e00", "B backward"},
    {Kind::I, "#d55e00", "I gradient of the input"},
    {Kind::W, "#009e73", "W gradients of the weights"},
};

const Look& look_of(Kind kind) { return kLooks[static_cast<int>(kind)]; }

std::string escaped(const std::string& text) {
  std::string result;
  for (const char c : text) result += c == '<' ? "&lt;" : c == '>' ? "&gt;" : c == '&' ? "&amp;" : std::string(1, c);
  return result;
}

class Drawing {
 public:
  Drawing(const Schedule& schedule, const Prediction& prediction) : schedule_(schedule), prediction_(prediction) {
    double shortest = std::numeric_limits<double>::max();
    std::size_t longest_label = 0;
    for (const auto& list : prediction.timeline)
      for (const Timed& timed : list)
        if (!is_message(timed.action.kind)) {
          shortest = std::min(shortest, timed.end - timed.begin);
          longest_label = std::max(longest_label, label_of(timed.action, with_stage_).size());
          kinds_.insert(timed.action.kind);
        }
    const double least_box = kLetter * static_cast<double>(longest_label) + 8;
    scale_ = std::min(least_box / shortest, kMaxWidth / prediction.makespan);
  }

  std::string svg(const std::string& title) {
    const double plot = prediction_.makespan * scale_;
    const double width = kLeft + std::max({plot, kLeastWidth, text_width(title, 16)}) + kRight;
    const double height = kTop + kRow * schedule_.ranks + kBottom;
    text_ = fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:.0f} {1:.0f}\" width=\"{0:.0f}\" "
        "height=\"{1:.0f}\" font-family=\"Helvetica, Arial, sans-serif\" font-size=\"12\">\n"
        "<title>{2}</title>\n<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n"
        "<defs><pattern id=\"idle\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\" "
        "patternTransform=\"rotate(45)\"><rect width=\"6\" height=\"6\" fill=\"#f4f4f4\"/>"
        "<line x1=\"0\" y1=\"0\" x2=\"0\" y2=\"6\" stroke=\"#d8d8d8\" stroke-width=\"2\"/></pattern></defs>\n",
        width, height, escaped(title));
    label(kLeft, 26, title, "start", "font-size=\"16\" font-weight=\"bold\" fill=\"#222222\"");
    draw_legend();
    for (Rank rank = 0; rank < schedule_.ranks; ++rank) draw_rank(rank, plot);
    const double bottom = kTop + kRow * schedule_.ranks;
    label(kLeft, bottom + 18, "0", "middle", "fill=\"#555555\"");
    label(kLeft + plot, bottom + 18, fmt::format("{:g}", prediction_.makespan), "middle", "fill=\"#555555\"");
    label(kLeft + plot / 2, bottom + 18, fmt::format("time; {:.1f}% of it is bubble", 100 * prediction_.bubble),
          "middle", "fill=\"#555555\"");
    return text_ + "</svg>\n";
  }

 private:
  void label(double x, double y, const std::string& text, const char* anchor, const std::string& style) {
    text_ += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\" {}>{}</text>\n", x, y, anchor, style,
                         escaped(text));
  }

  void swatch(double& x, const std::string& fill, const std::string& words) {
    text_ += fmt::format("<rect x=\"{:.1f}\" y=\"40\" width=\"14\" height=\"14\" fill=\"{}\"/>\n", x, fill);
    label(x + 20, 51.5, words, "start", "fill=\"#333333\"");
    x += 40 + 6.4 * static_cast<double>(words.size());
  }

  void draw_legend() {
    double x = kLeft;
    for (const Look& look : kLooks)
      if (kinds_.contains(look.kind)) swatch(x, look.colour, look.words);
    swatch(x, "url(#idle)", "idle");
  }

  void draw_rank(Rank rank, double plot) {
    const double top = kTop + kRow * rank;
    const double middle = top + kBox / 2 + 4;
    label(kLeft - 10, middle, fmt::format("rank {}", rank), "end", "fill=\"#222222\"");
    text_ += fmt::format("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.2f}\" height=\"{:.1f}\" fill=\"url(#idle)\"/>\n",
                         kLeft, top, plot, kBox);
    for (const Timed& timed : prediction_.timeline[index_of(rank)])
      if (!is_message(timed.action.kind)) draw_box(timed, top, middle);
    label(kLeft + plot + 10, middle, fmt::format("holds up to {}", prediction_.peak_activations[index_of(rank)]),
          "start", "fill=\"#555555\"");
  }

  void draw_box(const Timed& timed, double top, double middle) {
    const double x = kLeft + timed.begin * scale_;
    const double width = (timed.end - timed.begin) * scale_;
    const std::string text = label_of(timed.action, with_stage_);
    // The second, third, ... stage of a rank is lighter, with dark letters.
    const int turn = timed.action.stage / schedule_.ranks;
    const double opacity = std::max(0.25, 1 - 0.4 * turn);
    text_ += fmt::format(
        "<rect x=\"{:.2f}\" y=\"{:.1f}\" width=\"{:.2f}\" height=\"{:.1f}\" fill=\"#ffffff\"/>"
        "<rect x=\"{:.2f}\" y=\"{:.1f}\" width=\"{:.2f}\" height=\"{:.1f}\" fill=\"{}\" fill-opacity=\"{:.2f}\"/>\n",
        x, top, width, kBox, x + 0.5, top, std::max(width - 1, 0.2), kBox, look_of(timed.action.kind).colour, opacity);
    if (width >= kLetter * static_cast<double>(text.size()) - 2)
      label(x + width / 2, middle, text, "middle",
            fmt::format("font-size=\"11\" fill=\"{}\"", turn == 0 ? "#ffffff" : "#222222"));
  }

  const Schedule& schedule_;
  const Prediction& prediction_;
  const bool with_stage_ = virtual_stages(schedule_) > 1;
  std::set<Kind> kinds_;
  double scale_ = 1;  // pixels per unit of time
  std::string text_;
};

}  // namespace

std::string svg_of(const Schedule& schedule, const Prediction& prediction, const std::string& title) {
  return Drawing(schedule, prediction).svg(title);
}

}  // namespace lockstep::pipeline
