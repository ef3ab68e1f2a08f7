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

// Normal inputs [rows, dim]; the class, 0 or 1, is the sign of the input's product with a vector w* that is drawn after
// the inputs, and then a share `wrong` of the labels is turned around. So there is a rule to learn, and a loss of
// -wrong log(wrong) - (1 - wrong) log(1 - wrong) is the best that the rule alone gives: 0.325 where one in ten is
// wrong.
Batch teacher(std::int64_t rows, std::int64_t dim, double wrong);

// y = X w* + noise * normal: inputs [rows, dim], targets [rows, 1]. w* is drawn after the inputs.
Batch regression(std::int64_t rows, std::int64_t dim, double noise);

// Normal images [rows, 1, side, side], targets random in [0, classes).
Batch images(std::int64_t rows, std::int64_t side = 28, std::int64_t classes = 10);

}  // namespace lockstep::data
