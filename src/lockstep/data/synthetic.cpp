#include "lockstep/data.h"

#include <fmt/format.h>
#include <cmath>

#include "lockstep/data/chain.h"
#include "lockstep/error.h"

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

Batch tokens(std::int64_t rows, std::int64_t sequence, std::int64_t vocabulary) {
  check("rows", rows);
  check("sequence", sequence);
  check("vocabulary", vocabulary);
  const torch::Tensor order = torch::randperm(vocabulary, torch::kInt64);
  torch::Tensor token = torch::randint(0, vocabulary, {rows}, torch::kInt64);
  const torch::Tensor drawn = torch::rand({rows, sequence});
  // Which of its successors follows a token: the number of bounds that the drawn number has reached.
  torch::Tensor successor = torch::zeros({rows, sequence}, torch::kInt64);
  std::vector<double> probabilities = successor_probabilities(vocabulary);
  probabilities.pop_back();
  double bound = 0;
  for (const double probability : probabilities) successor += drawn >= (bound += probability);

  std::vector<torch::Tensor> chain{token};
  for (std::int64_t i = 0; i < sequence; ++i) {
    token = order.index_select(0, (token + successor.select(1, i)).remainder(vocabulary));
    chain.push_back(token);
  }
  const torch::Tensor all = torch::stack(chain, 1);
  return {.inputs = all.narrow(1, 0, sequence).contiguous(),
          .targets = all.narrow(1, 1, sequence).contiguous(),
          .whole = rows};
}

Batch images(std::int64_t rows, std::int64_t side, std::int64_t classes) {
  check("rows", rows);
  check("side", side);
  check("classes", classes);
  return labelled(torch::randn({rows, 1, side, side}), classes);
}

}  // namespace lockstep::data
