// `lockstep run` as a function.
#pragma once

#include "lockstep/launch/options.h"

namespace lockstep::launch {

// Starts the ranks, watches them, and returns when all of them are gone, with everything that they and the launcher
// started. Throws UsageError before anything is started if the options cannot work. Returns the exit code for this
// process:
// - 0 if every rank returned 0;
// - the code of the rank that failed first, which is 128+N if signal N ended it;
// - 128+N if signal N told the launcher to stop, and 128+SIGPIPE if nobody reads the output any more;
// - kExitTimedOut if the launcher lost patience, and kExitFailed if output could not be written.
//
// While it runs, it uses the descriptors 0, 1 and 2, and takes over the signals and the children of this process. So
// there may be only one call at a time, in a program that has no other children.
int run(const Options& options);

}  // namespace lockstep::launch
