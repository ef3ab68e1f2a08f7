// Small models and helpers for the tests of parallel/data.
#pragma once

#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "lockstep/communicator.h"
#include "lockstep/data_parallel.h"
#include "lockstep/tensor.h"
#include "numerics.h"

namespace lockstep::test {

constexpr std::int64_t kDim = 12;

// Ranks are threads here and torch's generator is one for all: draw under a lock, from a fresh seed.
inline std::mutex& generator() {
  static std::mutex mutex;
  return mutex;
}

struct NetImpl : torch::nn::Module {
  explicit NetImpl(std::int64_t dim = kDim, bool normalised = false) {
    first = register_module("first", torch::nn::Linear(dim, dim));
    if (normalised) norm = register_module("norm", torch::nn::BatchNorm1d(dim));
    second = register_module("second", torch::nn::Linear(dim, dim));
    last = register_module("last", torch::nn::Linear(dim, 1));
  }
  torch::Tensor forward(torch::Tensor x) {
    x = torch::relu(first(x));
    if (!norm.is_empty()) x = norm(x);
    return last(torch::relu(second(x)));
  }
  torch::nn::Linear first{nullptr}, second{nullptr}, last{nullptr};
  torch::nn::BatchNorm1d norm{nullptr};
};
TORCH_MODULE(Net);

template <typename Module, typename... Arguments>
std::shared_ptr<Module> seeded(std::uint64_t seed, Arguments&&... arguments) {
  const std::lock_guard lock(generator());
  torch::manual_seed(seed);
  return std::make_shared<Module>(std::forward<Arguments>(arguments)...);
}

struct Data {
  torch::Tensor x, y;
  Data rows(std::int64_t begin, std::int64_t end) const { return {x.slice(0, begin, end), y.slice(0, begin, end)}; }
  Data share(const Communicator& comm) const {
    const std::int64_t each = x.size(0) / comm.size();
    return rows(comm.rank() * each, (comm.rank() + 1) * each);
  }
};

inline Data draw(std::int64_t rows, std::uint64_t seed = 7, std::int64_t dim = kDim) {
  const std::lock_guard lock(generator());
  torch::manual_seed(seed);
  torch::Tensor x = torch::randn({rows, dim});
  return {x, torch::randn({rows, 1})};
}

inline torch::Tensor mse(const torch::Tensor& got, const torch::Tensor& want) { return (got - want).pow(2).mean(); }

inline std::vector<torch::Tensor> copies(const torch::nn::Module& module) {
  std::vector<torch::Tensor> all;
  for (const torch::Tensor& parameter : module.parameters()) all.push_back(parameter.detach().clone());
  return all;
}

// What backward has left, in the order of parameters().
inline std::vector<torch::Tensor> gradients(const torch::nn::Module& module) {
  std::vector<torch::Tensor> all;
  for (const torch::Tensor& parameter : module.parameters()) all.push_back(parameter.grad());
  return all;
}

// The largest difference between two models' weights.
inline double distance(const std::vector<torch::Tensor>& a, const std::vector<torch::Tensor>& b) {
  double most = 0;
  for (std::size_t i = 0; i < a.size(); ++i) most = std::max(most, (a[i] - b[i]).abs().max().item<double>());
  return most;
}

using MakeOptimizer = std::function<std::unique_ptr<torch::optim::Optimizer>(std::vector<torch::Tensor>)>;

inline MakeOptimizer sgd(double lr = 0.1) {
  return [lr](std::vector<torch::Tensor> p) {
    return std::make_unique<torch::optim::SGD>(std::move(p), torch::optim::SGDOptions(lr).momentum(0.9));
  };
}
template <typename Optimizer, typename Options>
MakeOptimizer with(Options options) {
  return [options](std::vector<torch::Tensor> p) { return std::make_unique<Optimizer>(std::move(p), options); };
}

// What one process gets from the whole batch.
inline std::vector<torch::Tensor> trained_alone(const Data& data, int steps, const MakeOptimizer& make = sgd(),
                                                std::uint64_t seed = 1) {
  const auto net = seeded<NetImpl>(seed);
  const auto optimizer = make(net->parameters());
  for (int step = 0; step < steps; ++step) {
    optimizer->zero_grad();
    mse(net->forward(data.x), data.y).backward();
    optimizer->step();
  }
  return copies(*net);
}

// Same bits on all ranks.
inline bool same_everywhere(Communicator& comm, const torch::nn::Module& module) {
  bool same = true;
  for (const torch::Tensor& parameter : module.parameters()) {
    torch::Tensor first = parameter.detach().clone();
    broadcast(comm, first, 0);
    same = same && torch::equal(first, parameter.detach());
  }
  std::int32_t all = same ? 1 : 0;
  comm.all_reduce(Buffer(&all, 1, DType::int32), ReduceOp::min);
  return all == 1;
}

inline DdpOptions small_buckets() {
  DdpOptions options;
  options.first_bucket_bytes = 64;
  options.bucket_bytes = 700;
  return options;
}

// The text of what a world throws.
inline std::string error_of(int ranks, const std::function<void(Communicator&)>& body) {
  try {
    thread_world(ranks, body);
  } catch (const std::exception& error) {
    return error.what();
  }
  return "nothing was thrown";
}

// Uses branch a, b or both.
struct BranchesImpl : torch::nn::Module {
  BranchesImpl() {
    a = register_module("a", torch::nn::Linear(kDim, 1));
    b = register_module("b", torch::nn::Linear(kDim, 1));
    c = register_module("c", torch::nn::Linear(kDim, 1));
  }
  torch::Tensor forward(const torch::Tensor& x, bool use_b) { return use_b ? a(x) + b(x) : a(x); }
  torch::nn::Linear a{nullptr}, b{nullptr}, c{nullptr};  // c: never
};

}  // namespace lockstep::test
