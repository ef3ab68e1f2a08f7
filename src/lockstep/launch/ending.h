// How a job is ended: which signals are sent, and when. An ending is data; the supervisor carries it out.
#pragma once

#include <signal.h>

#include <vector>

#include "lockstep/base/clock.h"

namespace lockstep::launch {

// How urgently a job is ended. An ending is replaced only by a more urgent one.
enum class Urgency { none, report, interrupt, terminate, kill };

struct EndingStep {
  Duration after;  // since the ending began
  int signal;
};

struct Ending {
  Urgency urgency = Urgency::none;
  std::vector<EndingStep> steps;  // in chronological order
};

// After a rank failed: the others have time to report and to end by themselves.
inline Ending after_failure(Duration grace) { return {Urgency::report, {{grace, SIGTERM}, {2 * grace, SIGKILL}}}; }
// After Ctrl-C: ranks have time to save their work.
inline Ending after_interrupt(Duration grace) {
  return {Urgency::interrupt, {{0s, SIGINT}, {grace, SIGTERM}, {2 * grace, SIGKILL}}};
}
// When the launcher was told to terminate, nobody reads its output, it lost patience, or the ranks are done and left
// children behind.
inline Ending by_termination(Duration grace) { return {Urgency::terminate, {{0s, SIGTERM}, {grace, SIGKILL}}}; }
// After a second Ctrl-C, or SIGQUIT.
inline Ending at_once() { return {Urgency::kill, {{0s, SIGKILL}}}; }

}  // namespace lockstep::launch
