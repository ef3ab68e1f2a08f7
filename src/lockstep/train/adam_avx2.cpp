// For x86-64 machines with AVX2 and FMA. CMakeLists.txt compiles it with these flags.
#define LOCKSTEP_ADAM adam_avx2
#include "lockstep/train/adam_kernel.h"
