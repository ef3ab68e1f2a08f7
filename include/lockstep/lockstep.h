// Everything of Lockstep: communicators on tensors, data parallelism, pipelines, optimizers, weights on disk.
//
//   #include <lockstep/lockstep.h>      with the CMake target lockstep::lockstep
//
//   lockstep::DistributedDataParallel ddp(model, comm);    the same model on every rank
//   lockstep::Pipeline pipeline(model, comm);              some layers of the model on each rank
#pragma once

#include "lockstep/comm.h"
#include "lockstep/comm/tensor.h"
#include "lockstep/data/loader.h"
#include "lockstep/data/sampler.h"
#include "lockstep/data/synthetic.h"
#include "lockstep/model/cnn.h"
#include "lockstep/model/mlp.h"
#include "lockstep/optim/optimizer.h"
#include "lockstep/parallel/data/comm_hooks.h"
#include "lockstep/parallel/data/ddp.h"
#include "lockstep/parallel/data/naive.h"
#include "lockstep/parallel/pipeline/pipeline.h"
#include "lockstep/train/loop.h"
#include "lockstep/weights/safetensors.h"
