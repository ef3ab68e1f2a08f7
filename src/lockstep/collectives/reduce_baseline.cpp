// The kernels for any machine of this architecture.
#define LOCKSTEP_KERNELS reduce_baseline
#include "lockstep/collectives/reduce_kernels.h"
