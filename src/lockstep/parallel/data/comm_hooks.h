// Communication hooks that ship with Lockstep. A hook of your own is a function with the same signature;
// examples/custom_comm_hook.cpp shows one.
//
//   options.hook = lockstep::bfloat16_hook();
#pragma once

#include "lockstep/parallel/data/options.h"

namespace lockstep {

// Does what DistributedDataParallel does without a hook.
CommHook all_reduce_hook();

// Gradients travel in a 16-bit type. They are rounded once before they are sent, summed in float32, and the mean is
// rounded once more. bfloat16 has the range of float32. float16 has three more bits of precision, but values above
// 65504 become infinite.
// One hook may serve several models of a rank. Ranks that are threads need one hook each. Buckets of types other than
// float32 and float64 travel unchanged.
CommHook bfloat16_hook();
CommHook float16_hook();

}  // namespace lockstep
