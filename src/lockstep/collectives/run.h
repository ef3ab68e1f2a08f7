// Runs a plan: a small loop over its steps.
#pragma once

#include "lockstep/collectives/call.h"
#include "lockstep/collectives/plan.h"

namespace lockstep::collectives {

// `label` goes with every message and is expected of every message.
void run_plan(const Plan& plan, const Call& call, const transport::Label& label, Party& party);

}  // namespace lockstep::collectives
