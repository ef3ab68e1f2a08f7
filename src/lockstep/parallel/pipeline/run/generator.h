// The state of torch's default generator. All threads of a process share the generator, and each function locks it.
#pragma once

#include <ATen/CPUGeneratorImpl.h>
#include <torch/types.h>

#include <mutex>

namespace lockstep::pipeline {

inline torch::Tensor generator_state() {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard lock(generator.mutex());
  return generator.get_state();
}

inline void set_generator_state(const torch::Tensor& state) {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard lock(generator.mutex());
  generator.set_state(state);
}

// Puts the generator back, when it is destroyed, into the state that it had at construction.
class KeptGenerator {
 public:
  KeptGenerator() : state_(generator_state()) {}
  ~KeptGenerator() { set_generator_state(state_); }
  KeptGenerator(const KeptGenerator&) = delete;
  KeptGenerator& operator=(const KeptGenerator&) = delete;

 private:
  const torch::Tensor state_;
};

}  // namespace lockstep::pipeline
