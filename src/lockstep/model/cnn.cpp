#include "lockstep/model/cnn.h"

#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/pooling.h>

#include "lockstep/base/error.h"
#include "lockstep/model/limits.h"

namespace lockstep::model {
namespace {

// The side of the image after all pools.
std::int64_t side_after(const std::vector<std::int64_t>& channels, std::int64_t image_side) {
  std::int64_t side = image_side;
  std::string sides = std::to_string(side);
  for (std::size_t layer = 0; layer < channels.size(); ++layer) {
    side /= 2;
    sides += fmt::format(", {}", side);
    if (side == 0)
      throw UsageError(
          fmt::format("channels {} use up the image: its side became 0 at layer {} of {} ({}), because each "
                      "layer halves it",
                      fmt::join(channels, " "), layer + 1, channels.size(), sides),
          layer == 0 ? "larger images" : fmt::format("at most {} counts of channels", layer));
  }
  return side;
}

void check_sizes(const std::vector<std::int64_t>& channels, std::int64_t hidden, std::int64_t classes,
                 std::int64_t image_side) {
  check_size("the number of channels' counts", static_cast<std::int64_t>(channels.size()));
  for (const std::int64_t count : channels) check_size("a count of channels", count);
  check_size("hidden", hidden);
  check_size("classes", classes);
  check_size("the image's side", image_side);
}

double parameters_of(const std::vector<std::int64_t>& channels, std::int64_t hidden, std::int64_t classes,
                     std::int64_t side) {
  double sum = 0, inputs = 1;
  for (const std::int64_t count : channels) {
    sum += (9 * inputs + 1) * static_cast<double>(count);
    inputs = static_cast<double>(count);
  }
  const double features = inputs * static_cast<double>(side) * static_cast<double>(side);
  return sum + (features + 1) * static_cast<double>(hidden) +
         (static_cast<double>(hidden) + 1) * static_cast<double>(classes);
}

}  // namespace

SimpleCNNImpl::SimpleCNNImpl(const std::vector<std::int64_t>& channels, std::int64_t hidden, std::int64_t classes,
                             std::int64_t image_side) {
  check_sizes(channels, hidden, classes, image_side);
  const std::int64_t side = side_after(channels, image_side);
  check_fits(fmt::format("a CNN of channels {} and hidden {}", fmt::join(channels, " "), hidden),
             parameters_of(channels, hidden, classes, side));
  std::int64_t inputs = 1;
  for (const std::int64_t count : channels) {
    push_back(torch::nn::Conv2d(torch::nn::Conv2dOptions(inputs, count, 3).padding(1)));
    push_back(torch::nn::ReLU());
    push_back(torch::nn::MaxPool2d(2));
    inputs = count;
  }
  push_back(torch::nn::Flatten());
  push_back(torch::nn::Linear(inputs * side * side, hidden));
  push_back(torch::nn::ReLU());
  push_back(torch::nn::Linear(hidden, classes));
}

}  // namespace lockstep::model
