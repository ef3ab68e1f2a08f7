// For x86-64 machines with AVX2 and FMA. CMakeLists.txt compiles it with these flags.
#define LOCKSTEP_KERNEL avx2
#include "lockstep/optim/kernel.h"
