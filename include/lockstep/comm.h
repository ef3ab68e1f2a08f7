// Everything for communication: ranks, communicators, messages, errors. It needs no libtorch.
//
//   #include <lockstep/comm.h>          with the CMake target lockstep::comm
//
//   int main() {
//     return lockstep::rank_main([](lockstep::Communicator& comm) {
//       std::vector<float> gradients(1000, 1.0F);
//       comm.all_reduce(gradients, lockstep::ReduceOp::mean);
//     });
//   }
#pragma once

#include "lockstep/buffer.h"
#include "lockstep/communicator.h"
#include "lockstep/error.h"
#include "lockstep/options.h"
#include "lockstep/trace.h"
#include "lockstep/transport.h"
#include "lockstep/types.h"
#include "lockstep/work.h"
#include "lockstep/world.h"
