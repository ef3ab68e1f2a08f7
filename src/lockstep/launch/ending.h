// How a job is ended: which signals are sent, and when. A plan is data; the supervisor carries it out.
#pragma once

#include <signal.h>

#include <vector>

#include "lockstep/base/clock.h"

namespace lockstep::launch {

// How urgently a job is ended. A plan is replaced only by a more urgent one.
enum class Urgency { none, report, interrupt, terminate, kill };

struct Step {
  Duration after;  // since the plan began
  int signal;
};

struct Plan {
  Urgency urgency = Urgency::none;
  std::vector<Step> steps;  // in chronological order
};

// After a rank failed: the others have time to report and to end by themselves.
inline Plan after_failure(Duration grace) { return {Urgency::report, {{grace, SIGTERM}, {2 * grace, SIGKILL}}}; }
// After Ctrl-C: ranks have time to save their work.
inline Plan after_interrupt(Duration grace) {
  return {Urgency::interrupt, {{0s, SIGINT}, {grace, SIGTERM}, {2 * grace, SIGKILL}}};
}
// When the launcher was told to terminate, nobody reads its output, it lost patience, or the ranks are done and left
// children behind.
inline Plan by_termination(Duration grace) { return {Urgency::terminate, {{0s, SIGTERM}, {grace, SIGKILL}}}; }
// After a second Ctrl-C, or SIGQUIT.
inline Plan at_once() { return {Urgency::kill, {{0s, SIGKILL}}}; }

}  // namespace lockstep::launch
