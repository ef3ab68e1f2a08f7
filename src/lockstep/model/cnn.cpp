#include "lockstep/model.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/pooling.h>

#include "lockstep/error.h"
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

std::vector<Layer> cnn_layers(const std::vector<std::int64_t>& channels, std::int64_t hidden, std::int64_t classes,
                              std::int64_t image_side) {
  check_sizes(channels, hidden, classes, image_side);
  const std::int64_t side = side_after(channels, image_side);
  std::vector<Layer> layers;
  const auto add = [&](std::int64_t parameters, auto&& make) {
    layers.push_back({parameters, [make] { return torch::nn::AnyModule(make()); }});
  };
  const auto add_linear = [&](std::int64_t inputs, std::int64_t outputs) {
    add((inputs + 1) * outputs, [=] { return torch::nn::Linear(inputs, outputs); });
  };
  std::int64_t inputs = 1;
  for (const std::int64_t count : channels) {
    add((9 * inputs + 1) * count,
        [=] { return torch::nn::Conv2d(torch::nn::Conv2dOptions(inputs, count, 3).padding(1)); });
    add(0, [] { return torch::nn::ReLU(); });
    add(0, [] { return torch::nn::MaxPool2d(2); });
    inputs = count;
  }
  add(0, [] { return torch::nn::Flatten(); });
  add_linear(inputs * side * side, hidden);
  add(0, [] { return torch::nn::ReLU(); });
  add_linear(hidden, classes);
  return layers;
}

SimpleCNNImpl::SimpleCNNImpl(const std::vector<std::int64_t>& channels, std::int64_t hidden, std::int64_t classes,
                             std::int64_t image_side) {
  const std::vector<Layer> layers = cnn_layers(channels, hidden, classes, image_side);
  check_fits(fmt::format("a CNN of channels {} and hidden {}", fmt::join(channels, " "), hidden),
             parameters_of(channels, hidden, classes, side_after(channels, image_side)));
  for (const Layer& layer : layers) push_back(layer.make());
}

}  // namespace lockstep::model
