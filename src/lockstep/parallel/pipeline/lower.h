// From what is computed to what is sent as well: the pass that adds a send after each action whose result another rank
// needs, and a receive before each action that needs another rank's. Stages on the same rank exchange nothing.
//
//   rank 0   0F0          0F1                     0F0  0SEND_F0  0F1  0SEND_F1
//   rank 1        1F0          1B0       ->       1RECV_F0  1F0  1B0  1SEND_B0
//
// With asynchronous sends this order adds no wait: if the computations alone have an order that works, so has this.
// Blocking sends are another matter, and simulate.h tells.
//
// A schedule may bring its own sends and receives, as PyTorch's lists do. There a receive is a post: it says from where
// on the message may arrive, and the rank waits at the action that needs the data. Here the receive is where the rank
// waits, and the executor posts receives ahead by itself (messages.h). So sends stay where they are, and each receive
// moves directly in front of the action that needs it.
#pragma once

#include "lockstep/parallel/pipeline/schedule.h"

namespace lockstep::pipeline {

// `schedule` has no fault (check.h). A lowered schedule comes back unchanged.
Schedule lower(const Schedule& schedule);

}  // namespace lockstep::pipeline
