// The arithmetic of a reduction, vectorised for every type.
//
// Element i of all sources is combined in the order of the sources and written to all destinations. A destination may
// be one of the sources. float16 and bfloat16 are summed in float32 and rounded once. Integer sums and products wrap.
// NaN wins over any number in min and max. The bits do not depend on the machine's vector width.
#pragma once

#include <cstddef>
#include <span>

#include "lockstep/collectives/types.h"

namespace lockstep::collectives {

// `divisor` is 1, or the number of ranks when a mean is complete; never with integers.
void reduce(std::span<std::byte* const> destinations, std::span<const std::byte* const> sources, std::size_t count,
            DType dtype, ReduceOp op, int divisor);

// destination = destination op source
void reduce_into(std::byte* destination, const std::byte* source, std::size_t count, DType dtype, ReduceOp op,
                 int divisor);

// Conversions that round to nearest even, as the hardware does.
float to_float(Float16 value);
float to_float(BFloat16 value);
Float16 to_float16(float value);
BFloat16 to_bfloat16(float value);

}  // namespace lockstep::collectives
