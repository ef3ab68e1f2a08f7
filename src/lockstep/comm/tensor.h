// The communicator's operations on torch::Tensor. Only programs that use libtorch include this header.
//
//   lockstep::all_reduce_mean(comm, parameter.grad());
//
// Tensors. Dense, on the CPU, of a type that DType names; any other is a UsageError on this rank alone. Elements travel
// in the order of the indices. A tensor that is not contiguous is copied, and the result is copied back into it, so it
// may have any strides as long as its elements do not share memory. A contiguous one is worked on where it lies.
//
// Autograd. Nothing is recorded: the data changes under a tensor that requires grad, a leaf too. The tensor's version
// is counted up, so a backward that needs the old data says so.
//
// Works keep their tensors alive. The result is in the tensor once wait() has returned; leave it alone until then. A
// work that is dropped is waited for first, because the memory is in use.
#pragma once

#include <ATen/MemoryOverlap.h>
#include <torch/types.h>

#include <mutex>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/comm/communicator.h"

namespace lockstep {

namespace tensors {

// Who complains when a tensor is refused.
struct Caller {
  Rank rank;
  const char* op;
};

[[noreturn]] inline void refuse(const Caller* caller, const std::string& what, const std::string& hint) {
  if (caller == nullptr) throw UsageError("as_buffer: " + what, hint);
  throw UsageError(fmt::format("rank {}: {}: {}", caller->rank, caller->op, what), hint);
}

inline DType dtype_of(at::ScalarType type, const Caller* caller) {
  switch (type) {
    case at::kFloat:
      return DType::float32;
    case at::kDouble:
      return DType::float64;
    case at::kHalf:
      return DType::float16;
    case at::kBFloat16:
      return DType::bfloat16;
    case at::kChar:
      return DType::int8;
    case at::kInt:
      return DType::int32;
    case at::kLong:
      return DType::int64;
    case at::kByte:
      return DType::uint8;
    default:
      break;
  }
  const char* hint = type == at::kBool              ? "tensor.to(torch::kUInt8); its max is `any`, its min is `all`"
                     : type == at::kShort           ? "tensor.to(torch::kInt32)"
                     : at::isComplexType(type)      ? "torch::view_as_real(tensor), for sums and copies"
                     : at::isQIntType(type)         ? "tensor.dequantize(), or tensor.int_repr() for copies"
                                                    : "tensor.to() one of the types in DType";
  refuse(caller, fmt::format("no such operation on tensors of type {}", c10::toString(type)), hint);
}

// Gives the type of a tensor whose elements lie in this process's memory.
inline DType check(const torch::Tensor& tensor, const Caller* caller) {
  if (!tensor.defined())
    refuse(caller, "the tensor is undefined",
           "a tensor of zeros where there is nothing to give, such as a gradient that backward() never reached");
  if (tensor.is_meta())
    refuse(caller, "the tensor is on the meta device and has no data", "torch::empty_like(tensor, torch::kCPU)");
  if (!tensor.device().is_cpu())
    refuse(caller, fmt::format("the tensor is on {}, not on the CPU", tensor.device().str()), "tensor.cpu()");
  if (tensor.layout() != at::kStrided || tensor.is_nested())
    refuse(caller, fmt::format("the tensor is not dense: its layout is {}", c10::str(tensor.layout())),
           "tensor.to_dense()");
  const DType dtype = dtype_of(tensor.scalar_type(), caller);
  if (!tensor.has_storage()) refuse(caller, "the tensor has no memory of its own", "call it outside of vmap and functorch");
  return dtype;
}

// torch may also postpone a minus sign: then the memory holds the opposite.
inline bool in_one_piece(const torch::Tensor& tensor) { return tensor.is_contiguous() && !tensor.is_neg(); }

enum class Use { read, write, update };

// A tensor's elements in one piece of memory: its own, or a copy.
class Flat {
 public:
  Flat() = default;
  Flat(const torch::Tensor& tensor, Use use, const Caller& caller)
      : tensor_(tensor), use_(use), dtype_(check(tensor, &caller)) {
    if (in_one_piece(tensor)) return;
    if (use != Use::read && at::has_internal_overlap(tensor) == at::MemOverlap::Yes)
      refuse(&caller, "elements of the tensor share memory, so it can't take a result", "tensor.contiguous(), after expand()");
    copy_ = use == Use::write ? at::empty_like(tensor, {}, at::MemoryFormat::Contiguous)
                              : tensor.detach().clone(at::MemoryFormat::Contiguous);
  }

  Buffer buffer() const {
    if (!tensor_.defined()) return {};
    return {(copy_.defined() ? copy_ : tensor_).data_ptr(), static_cast<std::size_t>(tensor_.numel()), dtype_};
  }

  // Puts the result where the caller looks for it. The memory is not needed any more.
  void finish() {
    if (use_ != Use::read) {
      if (copy_.defined()) {
        const c10::InferenceMode mode(tensor_.is_inference());  // torch asks for it when such a tensor is written
        tensor_.detach().copy_(copy_);
      } else if (!tensor_.is_inference()) {
        tensor_.unsafeGetTensorImpl()->bump_version();
      }
    }
    *this = {};
  }

 private:
  torch::Tensor tensor_;
  torch::Tensor copy_;  // undefined: the tensor's own memory is used
  Use use_ = Use::read;
  DType dtype_ = DType::float32;
};

class TensorWork final : public Work::State {
 public:
  TensorWork(Flat input, Flat output) : input_(std::move(input)), output_(std::move(output)) {}
  ~TensorWork() override {
    try {
      TensorWork::wait();
    } catch (...) {  // whoever wants to know calls wait()
    }
  }
  TensorWork(const TensorWork&) = delete;

  template <typename Begin>
  void begin(Begin&& begin) {
    work_ = begin(input_.buffer(), output_.buffer());
  }
  void wait() override {
    work_.wait();
    std::call_once(finished_, [this] {
      output_.finish();
      input_.finish();
    });
  }
  bool done() override { return work_.done(); }

 private:
  Flat input_, output_;
  std::once_flag finished_;
  Work work_;
};

// Calls body(ConstBuffer input, Buffer output); an operation in place has an output only.
template <typename Body>
void run(const Flat& input, Flat output, Body&& body) {
  body(input.buffer(), output.buffer());
  output.finish();
}
template <typename Begin>
Work start(Flat input, Flat output, Begin&& begin) {
  auto work = std::make_shared<TensorWork>(std::move(input), std::move(output));
  work->begin(std::forward<Begin>(begin));
  return Work(std::move(work));
}

}  // namespace tensors
}  // namespace lockstep
