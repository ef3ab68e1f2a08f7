// What differs between the versions of libtorch that Lockstep is built with: 1.13, which Debian 12 has, and 2.6 or
// newer. All such differences stand here, so that the rest of the tree has no #if for them.
#pragma once

#include <ATen/Version.h>
#include <torch/types.h>
#include <torch/version.h>

#include <cstddef>
#include <cstdint>
#include <string>

namespace lockstep::libtorch {

// state_key: the key of a parameter's state in torch::optim::Optimizer.
// ReportedTotal: the type of the totals that c10's MemoryReportingInfoBase reports.
// kernels: the vector instructions that libtorch's own loops use, such as "AVX512"; empty in 1.13, which does not tell.
#if TORCH_VERSION_MAJOR >= 2
inline void* state_key(const torch::Tensor& parameter) { return parameter.unsafeGetTensorImpl(); }
using ReportedTotal = std::size_t;
inline std::string kernels() { return at::get_cpu_capability(); }
#else
inline std::string state_key(const torch::Tensor& parameter) {
  return c10::guts::to_string(parameter.unsafeGetTensorImpl());
}
using ReportedTotal = std::int64_t;
inline std::string kernels() { return ""; }
#endif

}  // namespace lockstep::libtorch
