// How a job is ended: which signals, and when. A plan is data; the supervisor carries it out.
#pragma once

#include <signal.h>

#include <vector>

#include "lockstep/base/clock.h"

namespace lockstep::launch {

// A worse way to end never gives way to a gentler one.
enum class Urgency { none, report, interrupt, terminate, kill };

struct Step {
  Duration after;  // since the plan began
  int signal;
};

struct Plan {
  Urgency urgency = Urgency::none;
  std::vector<Step> steps;  // in the order of time
};

// A rank failed: the others have time to report and end by themselves.
inline Plan after_failure(Duration grace) { return {Urgency::report, {{grace, SIGTERM}, {2 * grace, SIGKILL}}}; }
// Ctrl-C: ranks may save their work.
inline Plan after_interrupt(Duration grace) {
  return {Urgency::interrupt, {{0s, SIGINT}, {grace, SIGTERM}, {2 * grace, SIGKILL}}};
}
// Somebody wants us gone, or nobody reads us, or ranks are done and left children behind.
inline Plan by_termination(Duration grace) { return {Urgency::terminate, {{0s, SIGTERM}, {grace, SIGKILL}}}; }
// Ctrl-C again.
inline Plan at_once() { return {Urgency::kill, {{0s, SIGKILL}}}; }

}  // namespace lockstep::launch
