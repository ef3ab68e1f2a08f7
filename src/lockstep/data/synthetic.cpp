#include "lockstep/data/synthetic.h"

#include <fmt/format.h>
#include <cmath>

#include "lockstep/base/error.h"

namespace lockstep::data {
namespace {

void check(const char* what, std::int64_t size) {
  if (size < 1)
    throw UsageError(fmt::format("{} is {}, but must be at least 1", what, size), fmt::format("{} 1", what));
}

Batch labelled(const torch::Tensor& inputs, std::int64_t classes) {
  const std::int64_t rows = inputs.size(0);
  return {.inputs = inputs, .targets = torch::randint(0, classes, {rows}, torch::kInt64), .whole = rows};
}

}  // namespace

Batch classification(std::int64_t rows, std::int64_t dim, std::int64_t classes) {
  check("rows", rows);
  check("dim", dim);
  check("classes", classes);
  return labelled(torch::randn({rows, dim}), classes);
}

Batch teacher(std::int64_t rows, std::int64_t dim, double wrong) {
  check("rows", rows);
  check("dim", dim);
  if (!(wrong >= 0 && wrong <= 1))
    throw UsageError(fmt::format("the share of wrong labels is {}", wrong), "a share from 0 to 1");
  const torch::Tensor inputs = torch::randn({rows, dim});
  const torch::Tensor right = torch::mv(inputs, torch::randn({dim})) > 0;
  const torch::Tensor turned = torch::rand({rows}) < wrong;
  return {.inputs = inputs, .targets = right.logical_xor(turned).to(torch::kInt64), .whole = rows};
}

Batch regression(std::int64_t rows, std::int64_t dim, double noise) {
  check("rows", rows);
  check("dim", dim);
  if (!std::isfinite(noise) || noise < 0) throw UsageError(fmt::format("noise is {}", noise), "a noise of 0 or more");
  const torch::Tensor inputs = torch::randn({rows, dim});
  const torch::Tensor weights = torch::randn({dim, 1});
  const torch::Tensor targets = torch::mm(inputs, weights) + noise * torch::randn({rows, 1});
  return {.inputs = inputs, .targets = targets, .whole = rows};
}

Batch images(std::int64_t rows, std::int64_t side, std::int64_t classes) {
  check("rows", rows);
  check("side", side);
  check("classes", classes);
  return labelled(torch::randn({rows, 1, side, side}), classes);
}

}  // namespace lockstep::data
