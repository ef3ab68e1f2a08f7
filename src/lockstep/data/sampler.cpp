#include "lockstep/data.h"

#include <ATen/CPUGeneratorImpl.h>
#include <fmt/format.h>

#include <algorithm>

#include "lockstep/error.h"

namespace lockstep::data {

DistributedSampler::DistributedSampler(std::int64_t samples, Rank rank, int ranks, const SamplerOptions& options)
    : samples_(samples), rank_(rank), ranks_(ranks), options_(options) {
  if (ranks < 1 || rank < 0 || rank >= ranks)
    throw UsageError(fmt::format("a sampler for rank {} of {}", rank, ranks), "a rank from 0 to ranks-1");
  if (samples < 1) throw UsageError(fmt::format("a sampler of {} samples", samples), "at least 1 sample");
  if (samples < ranks && options.remainder != Remainder::pad)
    throw UsageError(fmt::format("{} samples are too few for {} ranks: some would have none", samples, ranks),
                     "fewer ranks, or the tail 'pad'");
}

std::int64_t DistributedSampler::total() const {
  switch (options_.remainder) {
    case Remainder::drop:
      return samples_ / ranks_ * ranks_;
    case Remainder::pad:
      return (samples_ + ranks_ - 1) / ranks_ * ranks_;
    case Remainder::uneven:
      break;
  }
  return samples_;
}

std::int64_t DistributedSampler::padding() const { return std::max<std::int64_t>(0, size() - places_before(samples_)); }

std::vector<std::int64_t> DistributedSampler::indices() const {
  std::vector<std::int64_t> mine(static_cast<std::size_t>(size()));
  torch::Tensor order;
  if (options_.shuffle) {
    const at::Generator generator = at::detail::createCPUGenerator(options_.seed + static_cast<std::uint64_t>(epoch_));
    order = torch::randperm(samples_, generator, torch::kInt64);
  } else {
    order = torch::arange(samples_, torch::kInt64);
  }
  const std::int64_t* at = order.data_ptr<std::int64_t>();
  std::int64_t place = rank_;
  for (std::int64_t& index : mine) {
    index = at[place % samples_];  // places beyond the end repeat the first samples
    place += ranks_;
  }
  return mine;
}

std::int64_t DistributedSampler::steps(std::int64_t whole_batch) const {
  if (whole_batch < ranks_)
    throw UsageError(
        fmt::format("a batch of {} is too small for {} ranks: some would have no sample", whole_batch, ranks_),
        fmt::format("a batch of at least {}", ranks_));
  return total() / whole_batch + (total() % whole_batch != 0 ? 1 : 0);
}

Rows DistributedSampler::rows_at(std::int64_t step, std::int64_t whole_batch) const {
  const std::int64_t begin = step * whole_batch;
  return {places_before(begin), places_before(begin + whole_at(step, whole_batch))};
}

std::int64_t DistributedSampler::whole_at(std::int64_t step, std::int64_t whole_batch) const {
  if (step < 0 || step >= steps(whole_batch))
    throw UsageError(fmt::format("step {} of an epoch of {}", step, steps(whole_batch)), "a step of the epoch");
  return std::min(whole_batch, total() - step * whole_batch);
}

}  // namespace lockstep::data
