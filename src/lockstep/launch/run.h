// `lockstep run` as a function.
#pragma once

#include "lockstep/launch/options.h"

namespace lockstep::launch {

// Starts the ranks, watches them, and returns when all are gone, with everything that they and it made. The result is
// what a process should exit with: 0 when every rank did, else the code of the rank that failed first, 128+N when
// signal N ended it or told us to stop. Throws UsageError before anything is started when the options can't work.
//
// Reads descriptor 0 and writes to 1 and 2, and takes over this process's signals and children while it runs: one call
// at a time, from a thread that outlives it, in a program that has no other children.
int run(const Options& options);

}  // namespace lockstep::launch
