// Communication hooks that ship with Lockstep. A hook of one's own is a function with the same shape:
// examples/custom_comm_hook.cpp.
//
//   options.hook = lockstep::bfloat16_hook();
#pragma once

#include "lockstep/parallel/data/options.h"

namespace lockstep {

// What DistributedDataParallel does without a hook.
CommHook all_reduce_hook();

// Gradients travel as half the bytes. They are rounded once on the way in, summed in float32, and the mean is rounded
// once. bfloat16 keeps float32's range; float16 keeps three more bits, and what is above 65504 becomes infinite.
// One hook may serve several models of a rank; ranks that are threads need one each.
// Buckets of other types than float32 and float64 travel as they are.
CommHook bfloat16_hook();
CommHook float16_hook();

}  // namespace lockstep
