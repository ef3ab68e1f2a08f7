// For any machine.
#define LOCKSTEP_KERNEL baseline
#include "lockstep/optim/kernel.h"
