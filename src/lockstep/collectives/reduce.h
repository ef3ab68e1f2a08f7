// The arithmetic of a reduction, vectorised for every type.
//
// Element i of all sources is combined in the order of the sources and written to all destinations. A destination may
// be one of the sources. float16 and bfloat16 are summed in float32 and rounded once. Integer sums and products wrap.
// The result of min and max is NaN if any source is NaN. The bits do not depend on the machine's vector width.
#pragma once

#include <cstddef>
#include <span>

#include "lockstep/buffer.h"

namespace lockstep::collectives {

// `divisor` is the number of ranks if this call completes a mean, otherwise 1. For integers it must be 1.
void reduce(std::span<std::byte* const> destinations, std::span<const std::byte* const> sources, std::size_t count,
            DType dtype, ReduceOp op, int divisor);

// destination = destination op source
void reduce_into(std::byte* destination, const std::byte* source, std::size_t count, DType dtype, ReduceOp op,
                 int divisor);

// These conversions round to nearest even, as the hardware does.
float to_float(Float16 value);
float to_float(BFloat16 value);
Float16 to_float16(float value);
BFloat16 to_bfloat16(float value);

}  // namespace lockstep::collectives
