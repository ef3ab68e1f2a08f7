#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "lockstep/parallel/pipeline/schedule/picture.h"

namespace lockstep::pipeline {
namespace {

constexpr double kMaxCells = 1e6;  // nobody reads a larger picture
constexpr int kMaxParts = 8;       // most ticks per shortest action, to make all lengths multiples of a tick

// Background colours from the 256-colour palette; neighbouring microbatches differ.
int colour_of(const Action& action) {
  constexpr int kColours[][2] = {{25, 31}, {124, 130}, {130, 136}, {22, 28}};  // F, B, I, W
  return kColours[static_cast<int>(action.kind)][action.microbatch % 2];
}

struct Cell {
  std::string text;
  int colour = -1;  // -1: no colour
};
using Row = std::vector<Cell>;

std::string padded(std::string text, std::size_t width, char fill) {
  text.resize(std::max(text.size(), width), fill);
  return text;
}

// The characters per tick that are needed so that the label and a blank fit into the action's ticks.
std::size_t room_for(const std::string& label, const Timed& timed, double tick) {
  const auto ticks = static_cast<std::size_t>(std::max(1L, std::lround((timed.end - timed.begin) / tick)));
  return (label.size() + ticks) / ticks;
}

class Drawing {
 public:
  Drawing(const Schedule& schedule, const Prediction& prediction) {
    const bool with_stage = virtual_stages(schedule) > 1;
    const double tick = tick_of(prediction);
    ticks_ = static_cast<std::size_t>(std::lround(prediction.makespan / tick));
    for (const auto& list : prediction.timeline)
      for (const Timed& timed : list)
        if (!is_message(timed.action.kind))
          cell_ = std::max(cell_, room_for(label_of(timed.action, with_stage), timed, tick));
    for (const auto& list : prediction.timeline) {
      Row& row = rows_.emplace_back(ticks_, Cell{padded(".", cell_, ' ')});
      for (const Timed& timed : list)
        if (!is_message(timed.action.kind)) place(row, timed, label_of(timed.action, with_stage), tick);
    }
  }

  std::string text(const TextStyle& style) const {
    const std::size_t margin = fmt::format("rank {}  ", rows_.size() - 1).size();
    const auto room = static_cast<std::size_t>(std::max(style.width, 0));
    const std::size_t a_line = room == 0 ? ticks_ : room > margin + cell_ ? (room - margin) / cell_ : 1;
    std::string text;
    for (std::size_t first = 0; first < ticks_; first += a_line) {
      const std::size_t last = std::min(first + a_line, ticks_);
      std::string axis = padded("tick", margin, ' ');
      for (std::size_t tick = first; tick < last; ++tick)
        if (tick % (cell_ > 1 ? 5 : 10) == 0) {
          axis.resize(std::max(axis.size(), margin + (tick - first) * cell_), ' ');
          axis += std::to_string(tick);
        }
      text += fmt::format("{}{}\n", first > 0 ? "\n" : "", axis);
      for (std::size_t rank = 0; rank < rows_.size(); ++rank)
        text += line(padded(fmt::format("rank {}", rank), margin, ' '), rows_[rank], first, last, style.colour);
    }
    return text;
  }

 private:
  void place(Row& row, const Timed& timed, const std::string& label, double tick) const {
    const auto from = std::min(static_cast<std::size_t>(std::lround(timed.begin / tick)), ticks_ - 1);
    const auto to = std::clamp(static_cast<std::size_t>(std::lround(timed.end / tick)), from + 1, ticks_);
    // Dashes up to one blank before the next action.
    const std::string text = padded(label, (to - from) * cell_ - 1, to - from > 1 ? '-' : ' ') + ' ';
    for (std::size_t i = from; i < to; ++i) row[i] = {text.substr((i - from) * cell_, cell_), colour_of(timed.action)};
  }

  static std::string line(std::string text, const Row& row, std::size_t first, std::size_t last, bool colour) {
    for (std::size_t i = first; i < last; ++i) {
      const Cell& cell = row[i];
      text += colour && cell.colour >= 0 ? fmt::format("\x1b[48;5;{};38;5;231m{}\x1b[0m", cell.colour, cell.text)
                                         : cell.text;
    }
    while (text.ends_with(' ')) text.pop_back();
    return text + "\n";
  }

  std::size_t cell_ = 1;  // characters per tick
  std::size_t ticks_ = 0;
  std::vector<Row> rows_;
};

bool is_whole(double number) { return std::abs(number - std::round(number)) < 1e-6 * std::max(1.0, number); }

}  // namespace

std::string label_of(const Action& action, bool with_stage) {
  return with_stage ? to_string(action) : fmt::format("{}{}", name_of(action.kind), action.microbatch);
}

double tick_of(const Prediction& prediction) {
  std::vector<double> lengths;
  for (const auto& list : prediction.timeline)
    for (const Timed& timed : list)
      if (!is_message(timed.action.kind)) lengths.push_back(timed.end - timed.begin);
  const double shortest = *std::min_element(lengths.begin(), lengths.end());
  double tick = shortest;
  for (int parts = 1; parts <= kMaxParts; ++parts) {
    const double candidate = shortest / parts;
    if (!std::all_of(lengths.begin(), lengths.end(), [&](double length) { return is_whole(length / candidate); }))
      continue;
    tick = candidate;
    break;
  }
  return tick;
}

std::string text_of(const Schedule& schedule, const Prediction& prediction, const TextStyle& style) {
  const double ticks = prediction.makespan / tick_of(prediction);
  if (ticks * schedule.ranks > kMaxCells)
    return fmt::format("(not drawn: {} ranks for {:.0f} ticks)\n", schedule.ranks, ticks);
  return Drawing(schedule, prediction).text(style);
}

}  // namespace lockstep::pipeline
