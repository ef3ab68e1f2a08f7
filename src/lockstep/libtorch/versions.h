// What differs between the versions of libtorch that Lockstep is built with: 1.13, which Debian 12 has, and 2.6 or
// newer. All such differences stand here, so that the rest of the tree has no #if for them.
#pragma once

#include <ATen/Version.h>
#include <c10/core/Allocator.h>
#include <torch/types.h>
#include <torch/version.h>

#include <cstddef>
#include <cstdint>
#include <string>

namespace lockstep::libtorch {

// state_key: the key of a parameter's state in torch::optim::Optimizer.
// ReportedTotal: the type of the totals that c10's MemoryReportingInfoBase reports.
// CpuAllocator: the base class of an allocator that stands before another one, `behind`; it implements make().
// kernels: the vector instructions that libtorch's own loops use, such as "AVX512"; empty in 1.13, which does not tell.
#if TORCH_VERSION_MAJOR >= 2
inline void* state_key(const torch::Tensor& parameter) { return parameter.unsafeGetTensorImpl(); }
using ReportedTotal = std::size_t;
inline std::string kernels() { return at::get_cpu_capability(); }
struct CpuAllocator : c10::Allocator {
  explicit CpuAllocator(c10::Allocator* allocator) : behind(allocator) {}
  c10::DataPtr allocate(std::size_t bytes) final { return make(bytes); }
  void copy_data(void* to, const void* from, std::size_t bytes) const final { behind->copy_data(to, from, bytes); }
  virtual c10::DataPtr make(std::size_t bytes) const = 0;
  c10::Allocator* const behind;
};
#else
inline std::string state_key(const torch::Tensor& parameter) {
  return c10::guts::to_string(parameter.unsafeGetTensorImpl());
}
using ReportedTotal = std::int64_t;
inline std::string kernels() { return ""; }
struct CpuAllocator : c10::Allocator {
  explicit CpuAllocator(c10::Allocator* allocator) : behind(allocator) {}
  c10::DataPtr allocate(std::size_t bytes) const final { return make(bytes); }
  virtual c10::DataPtr make(std::size_t bytes) const = 0;
  c10::Allocator* const behind;
};
#endif

}  // namespace lockstep::libtorch
