// For any machine.
#define LOCKSTEP_ADAM adam_baseline
#include "lockstep/train/adam_kernel.h"
