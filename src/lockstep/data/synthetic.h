// Synthetic data: one whole batch, the same on every rank that has the same seed.
//
// Everything is drawn from torch's default generator in its current state, inputs first and then targets, so that
//
//   torch::manual_seed(42); auto model = make_model(config); auto batch = classification(32, 128);
//
// gives the weights, inputs and targets that the same lines give in Python, bit for bit. The functions throw UsageError
// if a size is below 1.
#pragma once

#include <cstdint>

#include "lockstep/data/batch.h"

namespace lockstep::data {

// Normally distributed inputs [rows, dim]; random targets in [0, classes), so there is nothing to learn but the batch
// itself.
Batch classification(std::int64_t rows, std::int64_t dim, std::int64_t classes = 2);

// Normally distributed inputs [rows, dim]. The class, 0 or 1, is the sign of the input's dot product with a vector w*,
// which is drawn after the inputs. Then a random fraction `wrong` of the labels is flipped. So there is a rule to
// learn, and the best loss that the rule alone can give is -wrong log(wrong) - (1 - wrong) log(1 - wrong): 0.325 if one
// label in ten is wrong.
Batch teacher(std::int64_t rows, std::int64_t dim, double wrong);

// y = X w* + noise * e with normally distributed X, w* and e: inputs [rows, dim], targets [rows, 1]. w* is drawn after
// the inputs.
Batch regression(std::int64_t rows, std::int64_t dim, double noise);

// Normally distributed images [rows, 1, side, side]; random targets in [0, classes).
Batch images(std::int64_t rows, std::int64_t side = 28, std::int64_t classes = 10);

}  // namespace lockstep::data
