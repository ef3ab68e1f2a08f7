// Pictures of a schedule: a row a rank, time from left to right, what is idle left visible. Drawn from the simulation,
// so they show what was proven.
#pragma once

#include <string>

#include "lockstep/parallel/pipeline/verify.h"

namespace lockstep::pipeline {

// For a terminal: a column a tick. An action that takes longer is drawn on with dashes, and a dot is idle.
//
//   tick    0              5              10
//   rank 0  F0 F1 .  .  B0--- F2 B1--- .  B2---
//   rank 1  .  F0 B0--- F1 B1--- F2 B2--- .  .
struct TextStyle {
  bool colour = false;
  int width = 0;  // of the terminal: a longer picture goes on below; 0: as wide as it gets
};
std::string text_of(const Schedule& schedule, const Prediction& prediction, const TextStyle& style = {});

// How long a column of text_of() is: as long as the shortest action, or a part of it that all others are multiples of.
double tick_of(const Prediction& prediction);

// A file that needs nothing else. Colours tell the kinds apart, lighter boxes are later stages of the same rank.
std::string svg_of(const Schedule& schedule, const Prediction& prediction, const std::string& title);

// What stands in a box: "F0", or "2F0" with its stage, where a rank has several.
std::string label_of(const Action& action, bool with_stage);

}  // namespace lockstep::pipeline
