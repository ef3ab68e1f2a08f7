#include "lockstep/tensor.h"

#include <ATen/MemoryOverlap.h>

#include <exception>
#include <mutex>
#include <utility>
#include <vector>

#include "lockstep/error.h"

namespace lockstep {
namespace {

// The caller, for the text of an error.
struct Caller {
  Rank rank = -1;
  const char* op = "";
};

[[noreturn]] void refuse(const Caller& caller, const std::string& what, const std::string& hint) {
  const std::string who = caller.rank < 0 ? "" : "rank " + std::to_string(caller.rank) + ": ";
  throw UsageError(who + caller.op + ": " + what, hint);
}

DType dtype_of(at::ScalarType type, const Caller& caller) {
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
  std::string hint = "tensor.to(torch::kFloat32), or another type that DType names";
  if (type == at::kBool) hint = "tensor.to(torch::kUInt8), whose max is `any` and whose min is `all`";
  if (type == at::kShort) hint = "tensor.to(torch::kInt32)";
  if (at::isComplexType(type)) hint = "torch::view_as_real(tensor)";
  if (at::isQIntType(type)) hint = "tensor.dequantize()";
  refuse(caller, c10::str("the tensor's type is ", type, ", which can't be sent or reduced"), hint);
}

// The type of the tensor's elements. Throws UsageError unless they lie in this process's memory.
DType check(const torch::Tensor& tensor, const Caller& caller) {
  if (!tensor.defined())
    refuse(
        caller, "the tensor is undefined",
        "torch::zeros of the other ranks' shape where there is nothing to give, such as a gradient that is not there");
  if (tensor.is_meta())
    refuse(caller, "the tensor is on the meta device and has no data", "torch::empty_like(tensor, torch::kCPU)");
  if (!tensor.device().is_cpu())
    refuse(caller, c10::str("the tensor is on ", tensor.device(), ", not on the CPU"), "tensor.cpu()");
  if (tensor.layout() != at::kStrided || tensor.is_nested())
    refuse(caller, "the tensor is not dense, but " + (tensor.is_nested() ? "nested" : c10::str(tensor.layout())),
           "tensor.to_dense()");
  const DType dtype = dtype_of(tensor.scalar_type(), caller);
  if (!tensor.has_storage()) refuse(caller, "the tensor has no memory of its own", "a call outside of vmap");
  return dtype;
}

// torch may have delayed a negation; then the memory holds the values with the opposite sign.
bool in_one_piece(const torch::Tensor& tensor) { return tensor.is_contiguous() && !tensor.is_neg(); }

enum class Use { none, read, write, update };

// A tensor's elements in one piece of memory: the tensor's own memory, or a copy. With Use::none there is no memory.
class Flat {
 public:
  Flat() = default;
  Flat(const torch::Tensor& tensor, Use use, const Caller& caller) : use_(use) {
    if (use == Use::none) return;
    dtype_ = check(tensor, caller);
    tensor_ = tensor;
    if (in_one_piece(tensor)) return;
    if (use != Use::read && at::has_internal_overlap(tensor) == at::MemOverlap::Yes)
      refuse(caller, "the tensor's elements share memory, so it can't take a result", "tensor.contiguous()");
    copy_ = use == Use::write ? at::empty_like(tensor, {}, at::MemoryFormat::Contiguous)
                              : tensor.detach().clone(at::MemoryFormat::Contiguous);
  }

  Buffer buffer() const {
    if (use_ == Use::none) return {};
    return {(copy_.defined() ? copy_ : tensor_).data_ptr(), static_cast<std::size_t>(tensor_.numel()), dtype_};
  }

  // Brings the result into the tensor, and releases all memory.
  void finish() {
    if (use_ == Use::write || use_ == Use::update) {
      if (copy_.defined())
        tensor_.detach().copy_(copy_);
      else if (!tensor_.is_inference())  // inference tensors have no version counter
        tensor_.unsafeGetTensorImpl()->bump_version();
    }
    *this = {};
  }

 private:
  torch::Tensor tensor_;
  torch::Tensor copy_;  // undefined if the tensor's own memory is used
  Use use_ = Use::none;
  DType dtype_ = DType::float32;
};

class TensorWork final : public Work::State {
 public:
  TensorWork(Flat input, Flat output) : input_(std::move(input)), output_(std::move(output)) {}
  TensorWork(const TensorWork&) = delete;
  ~TensorWork() override {
    try {
      // While an exception unwinds the stack, the peers may be waiting to hear of it from this rank. So the destructor
      // does not wait for them, and leaks the memory, which is still in use.
      if (std::uncaught_exceptions() > exceptions_ && !work_.done())
        new std::pair(std::move(input_), std::move(output_));
      else
        work_.wait();
    } catch (...) {  // callers that want the error call wait()
    }
  }

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
  Work::Times times() override { return work_.times(); }

 private:
  Flat input_;
  Flat output_;
  Work work_;
  std::once_flag finished_;
  const int exceptions_ = std::uncaught_exceptions();
};

// `call` takes a ConstBuffer and a Buffer; for start() it returns a Work. Operations that work in place have only an
// output.
template <typename Call>
void run(const Flat& input, Flat output, Call&& call) {
  call(input.buffer(), output.buffer());
  output.finish();
}
template <typename Call>
Work start(Flat input, Flat output, Call&& call) {
  auto work = std::make_shared<TensorWork>(std::move(input), std::move(output));
  work->begin(std::forward<Call>(call));
  return Work(std::move(work));
}

}  // namespace

// Defines an operation and its asynchronous version, from the memory that it reads, the memory that it writes, and the
// communicator's call.
#define LOCKSTEP_UNPACK(...) __VA_ARGS__
#define LOCKSTEP_TENSOR_OP(name, parameters, input, output, call)                                              \
  void name(Communicator& comm, LOCKSTEP_UNPACK parameters) {                                                  \
    using enum Use;                                                                                            \
    const Caller me{comm.rank(), #name};                                                                       \
    run(input, output, [&]([[maybe_unused]] ConstBuffer in, [[maybe_unused]] Buffer out) { comm.name call; }); \
  }                                                                                                            \
  Work name##_async(Communicator& comm, LOCKSTEP_UNPACK parameters) {                                          \
    using enum Use;                                                                                            \
    const Caller me{comm.rank(), #name};                                                                       \
    return start(input, output, [&]([[maybe_unused]] ConstBuffer in, [[maybe_unused]] Buffer out) {            \
      return comm.name##_async call;                                                                           \
    });                                                                                                        \
  }

LOCKSTEP_TENSOR_OP(all_reduce, (const torch::Tensor& tensor, ReduceOp op, const CallOptions& options), Flat(),
                   Flat(tensor, update, me), (out, op, options))
LOCKSTEP_TENSOR_OP(reduce, (const torch::Tensor& tensor, ReduceOp op, Rank root, const CallOptions& options), Flat(),
                   Flat(tensor, me.rank == root ? update : read, me), (out, op, root, options))
LOCKSTEP_TENSOR_OP(broadcast, (const torch::Tensor& tensor, Rank root, const CallOptions& options), Flat(),
                   Flat(tensor, me.rank == root ? read : write, me), (out, root, options))
LOCKSTEP_TENSOR_OP(scatter,
                   (const torch::Tensor& whole, const torch::Tensor& mine, Rank root, const CallOptions& options),
                   Flat(whole, me.rank == root ? read : none, me), Flat(mine, write, me), (in, out, root, options))
LOCKSTEP_TENSOR_OP(gather,
                   (const torch::Tensor& mine, const torch::Tensor& whole, Rank root, const CallOptions& options),
                   Flat(mine, read, me), Flat(whole, me.rank == root ? write : none, me), (in, out, root, options))
LOCKSTEP_TENSOR_OP(all_gather, (const torch::Tensor& mine, const torch::Tensor& whole, const CallOptions& options),
                   Flat(mine, read, me), Flat(whole, write, me), (in, out, options))
LOCKSTEP_TENSOR_OP(reduce_scatter,
                   (const torch::Tensor& whole, const torch::Tensor& mine, ReduceOp op, const CallOptions& options),
                   Flat(whole, read, me), Flat(mine, write, me), (in, out, op, options))
LOCKSTEP_TENSOR_OP(all_to_all, (const torch::Tensor& input, const torch::Tensor& output, const CallOptions& options),
                   Flat(input, read, me), Flat(output, write, me), (in, out, options))
LOCKSTEP_TENSOR_OP(send, (Rank to, const torch::Tensor& tensor, Tag tag), Flat(tensor, read, me), Flat(), (to, in, tag))
LOCKSTEP_TENSOR_OP(recv, (Rank from, const torch::Tensor& tensor, Tag tag), Flat(), Flat(tensor, write, me),
                   (from, out, tag))
#undef LOCKSTEP_TENSOR_OP
#undef LOCKSTEP_UNPACK

void all_reduce_mean(Communicator& comm, const torch::Tensor& tensor, const CallOptions& options) {
  all_reduce(comm, tensor, ReduceOp::mean, options);
}
Work all_reduce_mean_async(Communicator& comm, const torch::Tensor& tensor, const CallOptions& options) {
  return all_reduce_async(comm, tensor, ReduceOp::mean, options);
}

torch::Tensor all_gather(Communicator& comm, const torch::Tensor& mine, const CallOptions& options) {
  check(mine, {comm.rank(), "all_gather"});
  std::vector<std::int64_t> sizes = mine.sizes().vec();
  sizes.insert(sizes.begin(), comm.size());
  torch::Tensor whole = torch::empty(sizes, at::TensorOptions(mine.scalar_type()));
  all_gather(comm, mine, whole, options);
  return whole;
}

torch::Tensor allocate_tensor(Communicator& comm, at::IntArrayRef sizes, at::ScalarType dtype) {
  const Caller me{comm.rank(), "allocate_tensor"};
  std::size_t bytes = bytes_per_element(dtype_of(dtype, me));
  for (const std::int64_t size : sizes)
    if (size < 0 || __builtin_mul_overflow(bytes, static_cast<std::size_t>(size), &bytes))
      refuse(me, c10::str("no tensor has the shape ", sizes), "sizes from 0 on");
  const auto memory = comm.allocate_bytes(bytes);
  return torch::from_blob(
      memory->data(), sizes, [memory](void*) {}, at::TensorOptions(dtype));
}

Buffer as_buffer(const torch::Tensor& tensor) {
  const Caller me{.op = "as_buffer"};
  const DType dtype = check(tensor, me);
  if (!in_one_piece(tensor))
    refuse(me, "the tensor is not contiguous", "tensor.contiguous(), or the calls that take a tensor");
  return {tensor.data_ptr(), static_cast<std::size_t>(tensor.numel()), dtype};
}

}  // namespace lockstep
