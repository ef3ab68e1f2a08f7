// Runs a plan: a small loop over its steps.
#pragma once

#include "lockstep/collectives/call.h"
#include "lockstep/collectives/plan.h"

namespace lockstep::collectives {

// Every message that it sends carries `label`, and every message that arrives must carry the same one; otherwise it
// throws transport::WrongLabel. It also throws what `party.on_delay` throws.
void run_plan(const Plan& plan, const Call& call, const transport::Label& label, Party& party);

}  // namespace lockstep::collectives
