// Inputs and expected results of every op, type and reduce op, exact in each type. Shared by the matrix of threads and
// the program that runs a sample of it in processes.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "lockstep/collectives/reduce.h"
#include "lockstep/communicator.h"

namespace lockstep::cases {

// Small numbers whose sums, products and means are exact in every type, and differ by rank and place.
inline double input(Rank rank, std::size_t i, ReduceOp op, int p) {
  // Hashed, so that no two ranks or places look alike.
  const std::uint64_t hash = (i * 31 + static_cast<std::size_t>(rank) + 1) * 0x9e37'79b9'7f4a'7c15;
  const auto k = static_cast<int>((hash >> 40) % 5);
  if (op == ReduceOp::product) return (static_cast<std::size_t>(rank) == i % static_cast<std::size_t>(p)) ? 1 + k : 1;
  if (op == ReduceOp::mean) return k * p;  // every share divides
  return k;
}

inline double expected(std::size_t i, ReduceOp op, int p) {
  double result = input(0, i, op, p);
  for (Rank rank = 1; rank < p; ++rank) {
    const double value = input(rank, i, op, p);
    if (op == ReduceOp::sum || op == ReduceOp::mean) result += value;
    if (op == ReduceOp::min) result = std::min(result, value);
    if (op == ReduceOp::max) result = std::max(result, value);
    if (op == ReduceOp::product) result *= value;
  }
  return op == ReduceOp::mean ? result / p : result;
}

inline void put(std::byte* memory, DType dtype, std::size_t i, double value) {
  const auto store = [&](auto typed) { std::memcpy(memory + i * sizeof typed, &typed, sizeof typed); };
  switch (dtype) {
    case DType::float32:
      return store(static_cast<float>(value));
    case DType::float64:
      return store(value);
    case DType::float16:
      return store(collectives::to_float16(static_cast<float>(value)));
    case DType::bfloat16:
      return store(collectives::to_bfloat16(static_cast<float>(value)));
    case DType::int8:
      return store(static_cast<std::int8_t>(value));
    case DType::int32:
      return store(static_cast<std::int32_t>(value));
    case DType::int64:
      return store(static_cast<std::int64_t>(value));
    case DType::uint8:
      return store(static_cast<std::uint8_t>(value));
  }
}

inline double get(const std::byte* memory, DType dtype, std::size_t i) {
  const auto load = [&](auto typed) {
    std::memcpy(&typed, memory + i * sizeof typed, sizeof typed);
    return typed;
  };
  switch (dtype) {
    case DType::float32:
      return static_cast<double>(load(float{}));
    case DType::float64:
      return load(double{});
    case DType::float16:
      return static_cast<double>(collectives::to_float(load(Float16{})));
    case DType::bfloat16:
      return static_cast<double>(collectives::to_float(load(BFloat16{})));
    case DType::int8:
      return static_cast<double>(load(std::int8_t{}));
    case DType::int32:
      return static_cast<double>(load(std::int32_t{}));
    case DType::int64:
      return static_cast<double>(load(std::int64_t{}));
    case DType::uint8:
      return static_cast<double>(load(std::uint8_t{}));
  }
  return 0;
}

// Memory of one case: private, or from the arena.
class Memory {
 public:
  Memory(Communicator& comm, std::size_t bytes, bool arena) {
    if (arena) {
      shared_ = comm.allocate_bytes(bytes);
      data_ = shared_->data();
    } else {
      own_.resize(bytes + 1);
      data_ = own_.data();
    }
  }
  std::byte* data() { return data_; }

 private:
  std::vector<std::byte> own_;
  std::shared_ptr<Bytes> shared_;
  std::byte* data_ = nullptr;
};

struct Case {
  Op op = Op::all_reduce;
  DType dtype = DType::float32;
  ReduceOp reduce = ReduceOp::sum;
  std::size_t count = 0;  // of the whole; where parts must be equal, of a part
  Rank root = 0;
  Algorithm algorithm = Algorithm::automatic;
  bool async = false;
};

// Runs a case in the given memories (each as large as the whole); the number of wrong elements on this rank.
inline std::size_t wrong(Communicator& comm, const Case& c, std::byte* a, std::byte* b) {
  const int p = comm.size();
  const Rank me = comm.rank();
  const auto ranks = static_cast<std::size_t>(p);
  const CallOptions options{.algorithm = c.algorithm, .timeout = {}};
  const auto finish = [&](Work work) { work.wait(); };
  // What is not written stays wrong.
  const std::size_t room = c.op == Op::gather || c.op == Op::all_to_all ? c.count * ranks : c.count;
  if (room > 0) std::memset(b, 0x7b, room * bytes_per_element(c.dtype));
  std::size_t bad = 0;
  const auto check = [&](const std::byte* memory, std::size_t i, double value) {
    if (get(memory, c.dtype, i) != value) ++bad;
  };
  const auto fill = [&](std::byte* memory, std::size_t count, Rank rank, std::size_t from = 0) {
    for (std::size_t i = 0; i < count; ++i) put(memory, c.dtype, i, input(rank, from + i, c.reduce, p));
  };
  switch (c.op) {
    case Op::all_reduce:
      fill(a, c.count, me);
      if (c.async)
        finish(comm.all_reduce_async(Buffer(a, c.count, c.dtype), c.reduce, options));
      else
        comm.all_reduce(Buffer(a, c.count, c.dtype), c.reduce, options);
      for (std::size_t i = 0; i < c.count; ++i) check(a, i, expected(i, c.reduce, p));
      break;
    case Op::reduce:
      fill(a, c.count, me);
      if (c.async)
        finish(comm.reduce_async(Buffer(a, c.count, c.dtype), c.reduce, c.root, options));
      else
        comm.reduce(Buffer(a, c.count, c.dtype), c.reduce, c.root, options);
      for (std::size_t i = 0; i < c.count; ++i)
        check(a, i, me == c.root ? expected(i, c.reduce, p) : input(me, i, c.reduce, p));
      break;
    case Op::broadcast:
      fill(a, c.count, me);
      if (c.async)
        finish(comm.broadcast_async(Buffer(a, c.count, c.dtype), c.root, options));
      else
        comm.broadcast(Buffer(a, c.count, c.dtype), c.root, options);
      for (std::size_t i = 0; i < c.count; ++i) check(a, i, input(c.root, i, c.reduce, p));
      break;
    case Op::scatter:
      fill(a, c.count * ranks, me);
      if (c.async)
        finish(comm.scatter_async(ConstBuffer(a, me == c.root ? c.count * ranks : 0, c.dtype),
                                  Buffer(b, c.count, c.dtype), c.root, options));
      else
        comm.scatter(ConstBuffer(a, me == c.root ? c.count * ranks : 0, c.dtype), Buffer(b, c.count, c.dtype), c.root,
                     options);
      for (std::size_t i = 0; i < c.count; ++i)
        check(b, i, input(c.root, static_cast<std::size_t>(me) * c.count + i, c.reduce, p));
      break;
    case Op::gather:
      fill(a, c.count, me);
      if (c.async)
        finish(comm.gather_async(ConstBuffer(a, c.count, c.dtype),
                                 Buffer(b, me == c.root ? c.count * ranks : 0, c.dtype), c.root, options));
      else
        comm.gather(ConstBuffer(a, c.count, c.dtype), Buffer(b, me == c.root ? c.count * ranks : 0, c.dtype), c.root,
                    options);
      if (me == c.root)
        for (std::size_t i = 0; i < c.count * ranks; ++i)
          check(b, i, input(static_cast<Rank>(i / c.count), i % c.count, c.reduce, p));
      break;
    case Op::all_gather: {
      const std::size_t mine = chunk_size(c.count, p, me);
      fill(a, mine, me);
      if (c.async)
        finish(comm.all_gather_async(ConstBuffer(a, mine, c.dtype), Buffer(b, c.count, c.dtype), options));
      else
        comm.all_gather(ConstBuffer(a, mine, c.dtype), Buffer(b, c.count, c.dtype), options);
      for (Rank rank = 0; rank < p; ++rank)
        for (std::size_t i = 0; i < chunk_size(c.count, p, rank); ++i)
          check(b, chunk_begin(c.count, p, rank) + i, input(rank, i, c.reduce, p));
      break;
    }
    case Op::reduce_scatter: {
      const std::size_t mine = chunk_size(c.count, p, me);
      fill(a, c.count, me);
      if (c.async)
        finish(
            comm.reduce_scatter_async(ConstBuffer(a, c.count, c.dtype), Buffer(b, mine, c.dtype), c.reduce, options));
      else
        comm.reduce_scatter(ConstBuffer(a, c.count, c.dtype), Buffer(b, mine, c.dtype), c.reduce, options);
      for (std::size_t i = 0; i < mine; ++i) check(b, i, expected(chunk_begin(c.count, p, me) + i, c.reduce, p));
      break;
    }
    case Op::all_to_all:
      for (Rank to = 0; to < p; ++to)
        fill(a + static_cast<std::size_t>(to) * c.count * bytes_per_element(c.dtype), c.count, me + to);
      if (c.async)
        finish(comm.all_to_all_async(ConstBuffer(a, c.count * ranks, c.dtype), Buffer(b, c.count * ranks, c.dtype),
                                     options));
      else
        comm.all_to_all(ConstBuffer(a, c.count * ranks, c.dtype), Buffer(b, c.count * ranks, c.dtype), options);
      for (std::size_t i = 0; i < c.count * ranks; ++i)
        check(b, i, input(static_cast<Rank>(i / c.count) + me, i % c.count, c.reduce, p));
      break;
    case Op::barrier:
      if (c.async)
        finish(comm.barrier_async(options));
      else
        comm.barrier(options);
      break;
  }
  return bad;
}

inline bool reduces(Op op) { return op == Op::all_reduce || op == Op::reduce || op == Op::reduce_scatter; }

}  // namespace lockstep::cases
