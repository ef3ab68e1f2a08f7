// The kernels for x86-64 machines with AVX2 and F16C. CMakeLists.txt compiles this file with these flags.
#define LOCKSTEP_KERNELS reduce_avx2
#include "lockstep/collectives/reduce_kernels.h"
