// Checks the arguments of a collective and makes a Call of them. Throws UsageError if they are wrong; that concerns
// only this rank, because nothing has been sent yet.
#pragma once

#include <fmt/format.h>

#include <functional>
#include <string>

#include "lockstep/collectives/call.h"
#include "lockstep/comm/engine.h"
#include "lockstep/error.h"

namespace lockstep::comm {

using collectives::Call;

class CallBuilder {
 public:
  explicit CallBuilder(const Engine& engine) : engine_(engine) {}

  Call whole(Op op, const Buffer& buffer, ReduceOp reduce, Rank root, const CallOptions& options) const {
    Call call = base(op, buffer.dtype, buffer.count, reduce, root, options);
    call.input = call.output = memory(op, buffer);
    return call;
  }
  // In a scatter or gather the whole buffer is used, and checked, on the root only.
  Call parts(Op op, const ConstBuffer& input, const Buffer& output, bool input_is_whole, Rank root, ReduceOp reduce,
             const CallOptions& options) const {
    const auto p = static_cast<std::size_t>(engine_.size());
    const ConstBuffer& mine = input_is_whole ? ConstBuffer(output) : input;
    const ConstBuffer& whole = input_is_whole ? input : ConstBuffer(output);
    const bool rooted = op == Op::scatter || op == Op::gather;
    if (rooted) check_root(op, root);
    const bool has_whole = !rooted || engine_.rank() == root;
    const std::size_t count = rooted ? mine.count * p : whole.count;
    if (has_whole && whole.dtype != mine.dtype)
      fail(op, fmt::format("one buffer is {}, the other {}", name_of(whole.dtype), name_of(mine.dtype)));
    const std::size_t expected = rooted ? mine.count : chunk_size(whole.count, engine_.size(), engine_.rank());
    if (has_whole && whole.count != count)
      fail(op, fmt::format("the whole has {} elements, but {} parts of {} elements are {}", whole.count, p, mine.count,
                           count));
    if (mine.count != expected)
      fail(op, fmt::format("the whole has {} elements and this rank's part {}, which should be {}", whole.count,
                           mine.count, expected));
    const std::size_t place = chunk_begin(whole.count, engine_.size(), engine_.rank()) * bytes_per_element(whole.dtype);
    if (has_whole && overlap(mine, whole) && mine.data != whole.data + place)
      fail(op, "this rank's part lies in the whole, but not in its own place");
    Call call = base(op, mine.dtype, count, reduce, rooted ? root : 0, options);
    if (input_is_whole ? has_whole : true) call.input = memory(op, input);
    if (input_is_whole ? true : has_whole) call.output = memory(op, output);
    return call;
  }
  Call to_all(const ConstBuffer& input, const Buffer& output, const CallOptions& options) const {
    if (input.dtype != output.dtype || input.count != output.count)
      fail(Op::all_to_all, fmt::format("{} elements of {} in, {} of {} out", input.count, name_of(input.dtype),
                                       output.count, name_of(output.dtype)));
    if (input.count % static_cast<std::size_t>(engine_.size()) != 0)
      fail(Op::all_to_all, fmt::format("{} ranks do not divide {} elements", engine_.size(), input.count));
    if (overlap(input, output)) fail(Op::all_to_all, "input and output overlap");
    Call call = base(Op::all_to_all, input.dtype, input.count, ReduceOp::sum, 0, options);
    call.input = memory(Op::all_to_all, input);
    call.output = memory(Op::all_to_all, output);
    return call;
  }
  Call barrier(const CallOptions& options) const {
    return base(Op::barrier, DType::uint8, 0, ReduceOp::sum, 0, options);
  }

 private:
  [[noreturn]] void fail(Op op, const std::string& what) const {
    throw UsageError(ErrorFacts{.rank = engine_.world_rank(), .operation = name_of(op), .message = what});
  }
  static bool overlap(const ConstBuffer& a, const ConstBuffer& b) {
    return a.count > 0 && b.count > 0 && std::less<>()(a.data, b.data + b.bytes()) &&
           std::less<>()(b.data, a.data + a.bytes());
  }
  void check_root(Op op, Rank root) const {
    if (root < 0 || root >= engine_.size())
      fail(op, fmt::format("root {} is not a rank among {}", root, engine_.size()));
  }
  Call base(Op op, DType dtype, std::size_t count, ReduceOp reduce, Rank root, const CallOptions& options) const {
    if (root < 0 || root >= engine_.size())
      fail(op, fmt::format("root {} is not a rank among {}", root, engine_.size()));
    if (reduce == ReduceOp::mean && is_integer(dtype))
      fail(op, fmt::format("the mean of {} is not a {}", name_of(dtype), name_of(dtype)));
    return {.op = op, .reduce = reduce, .dtype = dtype, .algorithm = options.algorithm, .root = root, .count = count};
  }
  template <typename B>
  decltype(B::data) memory(Op op, const B& buffer) const {
    if (buffer.data == nullptr && buffer.count > 0)
      fail(op, fmt::format("a null pointer for {} elements", buffer.count));
    return buffer.data;
  }

  const Engine& engine_;
};

}  // namespace lockstep::comm
