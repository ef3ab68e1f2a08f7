// Gives every rank its part of a model, with the weights of rank 0.
#pragma once

#include <torch/nn/modules/container/sequential.h>

#include <vector>

#include "lockstep/communicator.h"
#include "lockstep/model.h"
#include "lockstep/parallel/pipeline/run/parts.h"
#include "lockstep/pipeline.h"

namespace lockstep::pipeline {

// All of these are collective. With Balance::time, rank 0 measures and tells the others.

// Cuts a model that every rank has as a whole. The ranks of the first pipeline get the weights and buffers of rank 0;
// the other pipelines get them when they are made. Throws Mismatch if ranks have different models.
Parts distribute(torch::nn::SequentialImpl& model, Communicator& comm, const PipelineOptions& options);

// Makes this rank's layers as make_parts() does, from the state of rank 0's generator. If this rank's generator was in
// another state, it is put back there.
Parts distribute(const std::vector<model::Layer>& layers, Communicator& comm, const PipelineOptions& options);

}  // namespace lockstep::pipeline
