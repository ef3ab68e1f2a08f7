// For x86-64 machines with AVX2 and FMA; compiled with these flags, see CMakeLists.txt.
#define LOCKSTEP_ADAM adam_avx2
#include "lockstep/train/adam_kernel.h"
