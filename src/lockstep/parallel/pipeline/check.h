// The half of the verifier that looks at the lists as they stand, before anybody waits for anybody. It holds that
// 1. every action is on the rank of its stage, and there once;
// 2. every stage has, for every microbatch, an F and either a B or both I and W;
// 3. on a rank, F comes before its B or I, I before its W, and stages that are neighbours in their order;
// 4. in a lowered schedule, every send has its receive and the other way round, a receive comes before its use, and a
//    send after what it sends.
// What is left is the order between ranks: simulate.h.
#pragma once

#include <string>

#include "lockstep/parallel/pipeline/schedule.h"

namespace lockstep::pipeline {

// The first thing that is wrong, with rank and step (both from 0); empty when nothing is.
std::string find_fault(const Schedule& schedule);

}  // namespace lockstep::pipeline
