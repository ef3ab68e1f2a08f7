#include "lockstep/optim/one_pass.h"

#include <ATen/Parallel.h>
#include <ATen/TensorIterator.h>

namespace lockstep::optim {
namespace {

constexpr std::int64_t kGrain = 32768;  // fewest elements that are worth a thread

bool is_plain(const torch::Tensor& tensor) {
  return tensor.scalar_type() == at::kFloat && tensor.is_cpu() && tensor.layout() == at::kStrided && !tensor.is_neg() &&
         tensor.is_non_overlapping_and_dense();
}

}  // namespace

torch::Tensor loss_of(const torch::optim::Optimizer::LossClosure& closure) {
  if (closure == nullptr) return {};
  const at::AutoGradMode with_gradients(true);
  return closure();
}

bool fit(const torch::Tensor& parameter, const torch::Tensor& other) {
  if (!other.defined() || !is_plain(parameter) || !is_plain(other) || parameter.sizes() != other.sizes()) return false;
  for (std::int64_t i = 0; i < parameter.dim(); ++i)  // the stride of a dimension with one element is never used
    if (parameter.size(i) != 1 && parameter.stride(i) != other.stride(i)) return false;
  return true;
}

void in_parts(const torch::Tensor& parameter, c10::function_ref<void(std::size_t, std::size_t)> work) {
  const std::int64_t count = parameter.numel();
  if (count <= kGrain || at::get_num_threads() == 1) return work(0, static_cast<std::size_t>(count));
  // Not at::parallel_for: that is a template, and it uses one thread wherever OpenMP is off in the compiler's flags.
  // TensorIterator's loop is compiled in libtorch and uses the threads that libtorch's own operations use.
  const torch::Tensor flat = parameter.detach().as_strided({count}, {1});
  const char* start = static_cast<const char*>(flat.data_ptr());
  at::TensorIterator::borrowing_nullary_op(flat).for_each(
      [&](char** data, const std::int64_t*, std::int64_t size, std::int64_t) {  // of one row, as `flat` has
        const auto begin = static_cast<std::size_t>(data[0] - start) / sizeof(float);
        work(begin, begin + static_cast<std::size_t>(size));
      },
      kGrain);
}

void average_all(const Groups& groups) {
  for (const auto& group : groups)
    for (const torch::Tensor& parameter : group.params())
      if (const Gradient gradient(parameter); gradient.unaveraged != nullptr) gradient.unaveraged->average();
}

}  // namespace lockstep::optim
