// The part of the verifier that checks the lists as they stand, without waits between ranks. It checks the following:
// 1. Every action is on the rank of its stage, and occurs once.
// 2. Every stage has, for every microbatch, an F and either a B or both I and W.
// 3. On one rank, F comes before its B or I, I comes before its W, and if neighbouring stages are on the same rank,
//    each action comes after the one whose result it needs.
// 4. In a lowered schedule, every send has its receive and every receive has its send. A receive comes before the
//    action that uses it, and a send after the action whose result it sends.
// The order between ranks remains: simulate.h checks it.
#pragma once

#include <string>

#include "lockstep/schedule.h"

namespace lockstep::pipeline {

// Returns the first fault, with rank and step if it has them (both counted from 0), or an empty string if there is
// none.
std::string find_fault(const Schedule& schedule);

}  // namespace lockstep::pipeline
