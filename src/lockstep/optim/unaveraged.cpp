#include "lockstep/optim/unaveraged.h"

#include <atomic>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "lockstep/collectives/reduce.h"

namespace lockstep::optim {
namespace {

// All objects of this process, by their parameter.
class Register {
 public:
  static Register& instance() {
    static auto* const all = new Register;  // optimizers may run until the process ends
    return *all;
  }

  void add(const torch::Tensor& parameter, Unaveraged* gradient) {
    const std::lock_guard lock(mutex_);
    by_parameter_[parameter.unsafeGetTensorImpl()] = gradient;
    count_.store(by_parameter_.size(), std::memory_order_relaxed);
  }
  void remove(const torch::Tensor& parameter) {
    const std::lock_guard lock(mutex_);
    by_parameter_.erase(parameter.unsafeGetTensorImpl());
    count_.store(by_parameter_.size(), std::memory_order_relaxed);
  }
  Unaveraged* find(const torch::Tensor& parameter) const {
    if (count_.load(std::memory_order_relaxed) == 0) return nullptr;  // nearly all programs have none
    const std::lock_guard lock(mutex_);
    const auto found = by_parameter_.find(parameter.unsafeGetTensorImpl());
    return found == by_parameter_.end() ? nullptr : found->second;
  }

 private:
  mutable std::mutex mutex_;
  std::atomic<std::size_t> count_ = 0;
  std::unordered_map<const void*, Unaveraged*> by_parameter_;
};

}  // namespace

Unaveraged::Unaveraged(torch::Tensor parameter, torch::Tensor place, std::vector<const std::byte*> parts)
    : parameter_(std::move(parameter)), place_(std::move(place)), parts_(std::move(parts)) {
  Register::instance().add(parameter_, this);
}

Unaveraged::~Unaveraged() { Register::instance().remove(parameter_); }

Unaveraged* Unaveraged::find(const torch::Tensor& parameter) {
  Unaveraged* const found = Register::instance().find(parameter);
  return found != nullptr && found->pending_ ? found : nullptr;
}

void Unaveraged::arrive() {
  torch::Tensor(parameter_).mutable_grad().reset();
  pending_ = true;
}

void Unaveraged::average() {
  if (!std::exchange(pending_, false)) return;
  mean(0, static_cast<std::size_t>(place_.numel()), place_.data_ptr<float>());
  torch::Tensor(parameter_).mutable_grad() = place_;
}

void Unaveraged::mean(std::size_t begin, std::size_t count, float* tile) const {
  std::vector<const std::byte*> sources;
  sources.reserve(parts_.size());
  for (const std::byte* part : parts_) sources.push_back(part + begin * sizeof(float));
  std::byte* const destinations[] = {reinterpret_cast<std::byte*>(tile)};
  collectives::reduce(destinations, sources, count, DType::float32, ReduceOp::mean, static_cast<int>(parts_.size()));
}

}  // namespace lockstep::optim
