// Pictures of a schedule: one row per rank, time from left to right, idle time visible. They are drawn from the
// simulation, so they show what was verified.
#pragma once

#include <string>

#include "lockstep/parallel/pipeline/schedule/verify.h"

namespace lockstep::pipeline {

// For a terminal: one column per tick. A longer action is continued with dashes, and a dot means idle.
//
//   tick    0              5              10
//   rank 0  F0 F1 .  .  B0--- F2 B1--- .  B2---
//   rank 1  .  F0 B0--- F1 B1--- F2 B2--- .  .
struct TextStyle {
  bool colour = false;
  int width = 0;  // width of the terminal, where a longer picture continues below; 0: no limit
};
std::string text_of(const Schedule& schedule, const Prediction& prediction, const TextStyle& style = {});

// The length of a column of text_of(): the length of the shortest action, or a fraction of it of which all other
// lengths are multiples.
double tick_of(const Prediction& prediction);

// An SVG file that needs no other files. Colours distinguish the kinds of actions, and lighter boxes are later stages
// of the same rank.
std::string svg_of(const Schedule& schedule, const Prediction& prediction, const std::string& title);

// The label of a box: "F0", or "2F0" with its stage, if a rank has several stages.
std::string label_of(const Action& action, bool with_stage);

}  // namespace lockstep::pipeline
