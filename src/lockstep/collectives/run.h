// Runs a plan: a small loop over its steps.
#pragma once

#include "lockstep/collectives/call.h"
#include "lockstep/collectives/plan.h"
#include "lockstep/transport.h"

namespace lockstep::collectives {

// Every message that it sends carries `label`, and every message that arrives must carry the same one; otherwise it
// throws transport::WrongLabel. It also throws what `group.on_delay` throws.
void run_plan(const Plan& plan, const Call& call, const transport::Label& label, Group& group);

}  // namespace lockstep::collectives
