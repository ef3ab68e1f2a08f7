// For x86-64 machines with AVX2 and F16C; compiled with these flags, see CMakeLists.txt.
#define LOCKSTEP_KERNELS reduce_avx2
#include "lockstep/collectives/reduce_kernels.h"
