// Everything of Lockstep that needs no libtorch: ranks, communicators, messages, errors.
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

#include "lockstep/base/error.h"
#include "lockstep/comm/communicator.h"
#include "lockstep/transport/world.h"
