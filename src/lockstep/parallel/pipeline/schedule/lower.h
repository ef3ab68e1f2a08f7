// Lowering: the pass that adds messages to a schedule of computations. It adds a send after each action whose result
// another rank needs, and a receive before each action that needs another rank's result. Stages on the same rank
// exchange no messages.
//
//   rank 0   0F0          0F1                     0F0  0SEND_F0  0F1  0SEND_F1
//   rank 1        1F0          1B0       ->       1RECV_F0  1F0  1B0  1SEND_B0
//
// With asynchronous sends this order adds no waits: if the computations alone can run to the end, so can the lowered
// lists. With blocking sends that is not certain; simulate.h finds out.
//
// A schedule may bring its own sends and receives, as PyTorch's lists do. In those lists a receive is a post: it says
// from when on the message may arrive, and the rank waits at the action that needs the data. Here the receive is where
// the rank waits, and the executor posts receives ahead by itself (messages.h). So sends stay where they are, and each
// receive moves directly in front of the action that needs it.
#pragma once

#include "lockstep/schedule.h"

namespace lockstep::pipeline {

// `schedule` must have no fault (check.h). Lowering a schedule that this function returned changes nothing.
Schedule lower(const Schedule& schedule);

}  // namespace lockstep::pipeline
