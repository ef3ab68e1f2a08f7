// Made-up data: one whole batch, the same on every rank that has the same seed.
//
// All are drawn from torch's default generator as it stands, inputs first and then targets, so that
//
//   torch::manual_seed(42); auto model = make_model(config); auto batch = classification(32, 128);
//
// gives the weights, inputs and targets that the same lines give in Python, bit for bit. Sizes below 1 are a
// UsageError.
#pragma once

#include <cstdint>

#include "lockstep/data/batch.h"

namespace lockstep::data {

// Normal inputs [rows, dim]; targets random in [0, classes): nothing to learn but the batch itself.
Batch classification(std::int64_t rows, std::int64_t dim, std::int64_t classes = 2);

// y = X w* + noise * normal: inputs [rows, dim], targets [rows, 1]. w* is drawn after the inputs.
Batch regression(std::int64_t rows, std::int64_t dim, double noise);

// Normal images [rows, 1, side, side], targets random in [0, classes).
Batch images(std::int64_t rows, std::int64_t side = 28, std::int64_t classes = 10);

}  // namespace lockstep::data
