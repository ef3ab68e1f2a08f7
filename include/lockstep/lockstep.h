// Everything of Lockstep: communicators on tensors, data parallelism, pipelines, optimizers, weights on disk.
//
//   #include <lockstep/lockstep.h>      with the CMake target lockstep::lockstep
//
//   lockstep::DistributedDataParallel ddp(model, comm);    the same model on every rank
//   lockstep::Pipeline pipeline(model, comm);              some layers of the model on each rank
#pragma once

#include "lockstep/comm.h"
#include "lockstep/data.h"
#include "lockstep/data_parallel.h"
#include "lockstep/gradients.h"
#include "lockstep/kinds.h"
#include "lockstep/manual.h"
#include "lockstep/model.h"
#include "lockstep/optimizer.h"
#include "lockstep/pipeline.h"
#include "lockstep/schedule.h"
#include "lockstep/tensor.h"
#include "lockstep/training.h"
#include "lockstep/weights.h"
