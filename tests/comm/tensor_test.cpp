// The overloads for torch::Tensor: every operation on every type, in every layout, against torch's own arithmetic.
#include "lockstep/tensor.h"
#include "lockstep/base/clock.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace lockstep {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;
using torch::Tensor;

constexpr std::array kTypes{torch::kFloat32, torch::kFloat64, torch::kFloat16, torch::kBFloat16,
                            torch::kInt8,    torch::kInt32,   torch::kInt64,   torch::kUInt8};

void run_world(int ranks, const std::function<void(Communicator&)>& body, const std::string& transport = "shm",
               const std::string& dump_dir = "") {
  transport::Options options;
  options.kind = parse_transport(transport);
  options.timeout = 60s;
  comm::Options comm_options;
  comm_options.timeout = 60s;
  comm_options.dump_dir = dump_dir;
  thread_world(ranks, body, options, comm_options);
}

// Small numbers that differ by rank and place; their sums and products are exact in every type.
Tensor input_of(Rank rank, at::IntArrayRef sizes, at::ScalarType type = torch::kFloat32) {
  std::int64_t count = 1;
  for (const std::int64_t size : sizes) count *= size;
  return torch::arange(count, torch::kInt64).mul(7).add(3 * rank).remainder(4).view(sizes).to(type);
}

std::vector<Tensor> inputs_of_all(int ranks, at::IntArrayRef sizes, at::ScalarType type) {
  std::vector<Tensor> inputs;
  for (Rank rank = 0; rank < ranks; ++rank) inputs.push_back(input_of(rank, sizes, type));
  return inputs;
}

// What torch makes of all ranks' tensors.
Tensor reduced(const std::vector<Tensor>& inputs, ReduceOp op) {
  const at::ScalarType type = inputs[0].scalar_type();
  const bool half = type == torch::kFloat16 || type == torch::kBFloat16;  // where torch lacks some reductions
  const Tensor all = half ? torch::stack(inputs).to(torch::kFloat32) : torch::stack(inputs);
  switch (op) {
    case ReduceOp::sum:
      return all.sum(0).to(type);
    case ReduceOp::mean:
      return all.mean(0).to(type);
    case ReduceOp::min:
      return all.amin(0).to(type);
    case ReduceOp::max:
      return all.amax(0).to(type);
    case ReduceOp::product:
      return all.prod(0).to(type);
  }
  return {};
}

// The same numbers in memory of another shape. What lies between the elements must stay as it is.
enum class Layout { contiguous, offset, transposed, sliced, negated };

class Laid {
 public:
  Laid(Layout layout, const Tensor& values) {
    const std::int64_t rows = values.size(0), columns = values.size(1);
    switch (layout) {
      case Layout::contiguous:
        around_ = tensor_ = values.clone();
        break;
      case Layout::offset:
        around_ = torch::full({rows + 2, columns}, 9, values.options());
        tensor_ = around_.narrow(0, 1, rows);
        break;
      case Layout::transposed:
        around_ = torch::full({columns, rows}, 9, values.options());
        tensor_ = around_.t();
        break;
      case Layout::sliced:
        around_ = torch::full({rows + 1, 3 * columns + 1}, 9, values.options());
        tensor_ = around_.narrow(0, 1, rows).slice(1, 1, 3 * columns + 1, 3);
        break;
      case Layout::negated:  // holds -x and says that it means x
        around_ = torch::full({rows, columns}, 9, values.options());
        tensor_ = at::_neg_view(around_);
        break;
    }
    if (layout != Layout::contiguous) tensor_.copy_(values);
    between_ = elements_between();
  }
  operator const Tensor&() const { return tensor_; }  // NOLINT
  const Tensor* operator->() const { return &tensor_; }
  // The values are these, and nothing else was written.
  bool holds(const Tensor& values) const {
    return torch::equal(tensor_.clone(at::MemoryFormat::Contiguous), values) && elements_between() == between_;
  }

 private:
  std::int64_t elements_between() const {
    return around_.eq(9).sum().item<std::int64_t>() -
           (tensor_.is_neg() ? tensor_.neg() : tensor_).eq(9).sum().item<std::int64_t>();
  }
  Tensor around_, tensor_;
  std::int64_t between_ = 0;
};

struct Point {
  Layout layout;
  bool async;
};

class EveryOperation : public ::testing::TestWithParam<Point> {
 protected:
  static constexpr int kRanks = 3;
  static constexpr Rank kRoot = 1;

  Laid laid(const Tensor& values) const { return {GetParam().layout, values}; }
  // Calls one of the two; the sync one, or the async one and waits.
  template <typename Now, typename Later>
  void call(Now&& now, Later&& later) const {
    if (GetParam().async) {
      Work work = later();
      work.wait();
      EXPECT_TRUE(work.done());
    } else {
      now();
    }
  }
  // A body for every type and shape; `sizes` has a multiple of the ranks as rows.
  void for_all(const std::function<void(Communicator&, at::IntArrayRef sizes, at::ScalarType type)>& body) const {
    run_world(kRanks, [&](Communicator& comm) {
      for (const auto type : kTypes) {
        if (GetParam().layout == Layout::negated && type == torch::kUInt8) continue;
        for (const std::array<std::int64_t, 2> sizes :
             {std::array<std::int64_t, 2>{0, 5}, {3, 0}, {3, 1}, {6, 5}, {3, 4001}}) {
          SCOPED_TRACE(fmt::format("rank {}: {}, {} x {}", comm.rank(), c10::toString(type), sizes[0], sizes[1]));
          body(comm, sizes, type);
        }
      }
    });
  }
};

#define CALL(name, ...) call([&] { name(__VA_ARGS__); }, [&] { return name##_async(__VA_ARGS__); })

TEST_P(EveryOperation, AllReduce) {
  for_all([&](Communicator& comm, at::IntArrayRef sizes, at::ScalarType type) {
    for (const ReduceOp op : all_reduce_ops()) {
      if (op == ReduceOp::mean && !at::isFloatingType(type)) continue;
      const Laid tensor = laid(input_of(comm.rank(), sizes, type));
      CALL(all_reduce, comm, tensor, op);
      EXPECT_TRUE(tensor.holds(reduced(inputs_of_all(kRanks, sizes, type), op))) << name_of(op);
    }
  });
}

TEST_P(EveryOperation, AllReduceMean) {
  for_all([&](Communicator& comm, at::IntArrayRef sizes, at::ScalarType type) {
    if (!at::isFloatingType(type)) return;
    const Laid tensor = laid(input_of(comm.rank(), sizes, type) * kRanks);
    CALL(all_reduce_mean, comm, tensor);
    EXPECT_TRUE(tensor.holds(reduced(inputs_of_all(kRanks, sizes, type), ReduceOp::sum)));
  });
}

TEST_P(EveryOperation, Reduce) {
  for_all([&](Communicator& comm, at::IntArrayRef sizes, at::ScalarType type) {
    const auto inputs = inputs_of_all(kRanks, sizes, type);
    const Laid tensor = laid(input_of(comm.rank(), sizes, type));
    CALL(reduce, comm, tensor, ReduceOp::sum, kRoot);
    EXPECT_TRUE(
        tensor.holds(comm.rank() == kRoot ? reduced(inputs, ReduceOp::sum) : input_of(comm.rank(), sizes, type)));
  });
}

TEST_P(EveryOperation, Broadcast) {
  for_all([&](Communicator& comm, at::IntArrayRef sizes, at::ScalarType type) {
    const Laid tensor = laid(input_of(comm.rank(), sizes, type));
    CALL(broadcast, comm, tensor, kRoot);
    EXPECT_TRUE(tensor.holds(input_of(kRoot, sizes, type)));
  });
}

TEST_P(EveryOperation, Scatter) {
  for_all([&](Communicator& comm, at::IntArrayRef sizes, at::ScalarType type) {
    const Tensor values = input_of(kRoot, sizes, type);
    const Laid whole = laid(values);
    const Laid mine = laid(torch::full({sizes[0] / kRanks, sizes[1]}, 5, type));
    CALL(scatter, comm, comm.rank() == kRoot ? static_cast<const Tensor&>(whole) : Tensor(), mine, kRoot);
    EXPECT_TRUE(mine.holds(values.chunk(kRanks)[static_cast<std::size_t>(values.size(0) > 0 ? comm.rank() : 0)]));
    EXPECT_TRUE(whole.holds(values));
  });
}

TEST_P(EveryOperation, Gather) {
  for_all([&](Communicator& comm, at::IntArrayRef sizes, at::ScalarType type) {
    const Laid mine = laid(input_of(comm.rank(), sizes, type));
    const Laid whole = laid(torch::full({kRanks * sizes[0], sizes[1]}, 5, type));
    CALL(gather, comm, mine, comm.rank() == kRoot ? static_cast<const Tensor&>(whole) : Tensor(), kRoot);
    if (comm.rank() == kRoot) {
      EXPECT_TRUE(whole.holds(torch::cat(inputs_of_all(kRanks, sizes, type))));
    }
    EXPECT_TRUE(mine.holds(input_of(comm.rank(), sizes, type)));
  });
}

TEST_P(EveryOperation, AllGather) {
  for_all([&](Communicator& comm, at::IntArrayRef sizes, at::ScalarType type) {
    const Laid mine = laid(input_of(comm.rank(), sizes, type));
    const Laid whole = laid(torch::full({kRanks * sizes[0], sizes[1]}, 5, type));
    CALL(all_gather, comm, mine, whole);
    EXPECT_TRUE(whole.holds(torch::cat(inputs_of_all(kRanks, sizes, type))));
    EXPECT_TRUE(torch::equal(all_gather(comm, mine), torch::stack(inputs_of_all(kRanks, sizes, type))));
  });
}

// The chunk rule: counts that the ranks do not divide.
TEST_P(EveryOperation, UnevenChunks) {
  run_world(kRanks, [&](Communicator& comm) {
    const Tensor values = input_of(7, {1, 11});
    const auto begin = static_cast<std::int64_t>(chunk_begin(11, kRanks, comm.rank()));
    const auto size = static_cast<std::int64_t>(chunk_size(11, kRanks, comm.rank()));
    const Laid mine = laid(values.narrow(1, begin, size));
    const Laid whole = laid(torch::zeros({1, 11}));
    CALL(all_gather, comm, mine, whole);
    EXPECT_TRUE(whole.holds(values));
    const Laid sum = laid(torch::zeros({1, size}));
    CALL(reduce_scatter, comm, whole, sum);
    EXPECT_TRUE(sum.holds(values.narrow(1, begin, size) * kRanks));
  });
}

TEST_P(EveryOperation, ReduceScatter) {
  for_all([&](Communicator& comm, at::IntArrayRef sizes, at::ScalarType type) {
    const Laid whole = laid(input_of(comm.rank(), sizes, type));
    const std::int64_t rows = sizes[0] / kRanks;
    const Laid mine = laid(torch::full({rows, sizes[1]}, 5, type));
    CALL(reduce_scatter, comm, whole, mine, ReduceOp::max);
    EXPECT_TRUE(
        mine.holds(reduced(inputs_of_all(kRanks, sizes, type), ReduceOp::max).narrow(0, rows * comm.rank(), rows)));
    EXPECT_TRUE(whole.holds(input_of(comm.rank(), sizes, type)));
  });
}

TEST_P(EveryOperation, AllToAll) {
  for_all([&](Communicator& comm, at::IntArrayRef sizes, at::ScalarType type) {
    const Laid input = laid(input_of(comm.rank(), sizes, type));
    const Laid output = laid(torch::full(sizes, 5, type));
    CALL(all_to_all, comm, input, output);
    std::vector<Tensor> expected;
    const std::int64_t rows = sizes[0] / kRanks;
    for (const Tensor& theirs : inputs_of_all(kRanks, sizes, type))
      expected.push_back(theirs.narrow(0, rows * comm.rank(), rows));
    EXPECT_TRUE(output.holds(torch::cat(expected)));
  });
}

TEST_P(EveryOperation, SendAndRecv) {
  for_all([&](Communicator& comm, at::IntArrayRef sizes, at::ScalarType type) {
    const Laid mine = laid(input_of(comm.rank(), sizes, type));
    const Laid theirs = laid(torch::full(sizes, 5, type));
    Work sent = send_async(comm, comm.next_rank(), mine, 1);
    send(comm, comm.next_rank(), mine, 2);
    CALL(recv, comm, comm.prev_rank(), theirs, 2);
    EXPECT_TRUE(theirs.holds(input_of(comm.prev_rank(), sizes, type)));
    theirs->zero_();
    CALL(recv, comm, comm.prev_rank(), theirs, 1);
    EXPECT_TRUE(theirs.holds(input_of(comm.prev_rank(), sizes, type)));
    sent.wait();
  });
}

std::string point_name(const ::testing::TestParamInfo<Point>& info) {
  constexpr std::array kNames{"contiguous", "offset", "transposed", "sliced", "negated"};
  return fmt::format("{}_{}", kNames[static_cast<std::size_t>(info.param.layout)], info.param.async ? "async" : "sync");
}

INSTANTIATE_TEST_SUITE_P(, EveryOperation,
                         ::testing::Values(Point{Layout::contiguous, false}, Point{Layout::contiguous, true},
                                           Point{Layout::offset, false}, Point{Layout::transposed, false},
                                           Point{Layout::transposed, true}, Point{Layout::sliced, false},
                                           Point{Layout::sliced, true}, Point{Layout::negated, false},
                                           Point{Layout::negated, true}),
                         point_name);

// --- numbers that round ---

TEST(Tensors, RandomNumbersAreSummedInRankOrderAsTorchWould) {
  const int ranks = 4;
  run_world(ranks, [&](Communicator& comm) {
    for (const auto type : {torch::kFloat32, torch::kFloat64, torch::kFloat16, torch::kBFloat16}) {
      const at::ScalarType wide = type == torch::kFloat64 ? torch::kFloat64 : torch::kFloat32;
      const auto random = [&](Rank rank) {
        return torch::randn({37, 111}, at::detail::createCPUGenerator(static_cast<std::uint64_t>(rank) + 1), wide)
            .to(type);
      };
      Tensor expected = random(0).to(wide);
      for (Rank rank = 1; rank < ranks; ++rank) expected = expected + random(rank).to(wide);
      Tensor tensor = random(comm.rank());
      all_reduce(comm, tensor, ReduceOp::sum, {.algorithm = Algorithm::ordered, .timeout = {}});
      EXPECT_TRUE(torch::equal(tensor, expected.to(type))) << c10::toString(type);
    }
  });
}

TEST(Tensors, AnyNumberOfDimensions) {
  run_world(2, [](Communicator& comm) {
    Tensor number = torch::tensor(comm.rank() + 1.0);
    all_reduce(comm, number);
    EXPECT_EQ(number.item<double>(), 3.0);
    EXPECT_TRUE(torch::equal(all_gather(comm, torch::tensor(comm.rank())), torch::arange(2, torch::kInt32)));

    const Tensor values = input_of(comm.rank(), {2, 3, 4, 5});
    Tensor image = values.contiguous(at::MemoryFormat::ChannelsLast);
    all_reduce(comm, image);
    EXPECT_TRUE(torch::equal(image, reduced(inputs_of_all(2, {2, 3, 4, 5}, torch::kFloat32), ReduceOp::sum)));
    EXPECT_TRUE(image.is_contiguous(at::MemoryFormat::ChannelsLast));
  });
}

TEST(Tensors, RanksNeedNotAgreeOnTheLayout) {
  run_world(2, [](Communicator& comm) {
    const Laid tensor(comm.rank() == 0 ? Layout::contiguous : Layout::sliced, input_of(comm.rank(), {4, 5}));
    all_reduce(comm, tensor);
    EXPECT_TRUE(tensor.holds(reduced(inputs_of_all(2, {4, 5}, torch::kFloat32), ReduceOp::sum)));
  });
}

TEST(Tensors, AWorldOfOne) {
  run_world(1, [](Communicator& comm) {
    const Laid tensor(Layout::transposed, input_of(0, {4, 5}));
    all_reduce_mean(comm, tensor);
    broadcast_async(comm, tensor, 0).wait();
    EXPECT_TRUE(tensor.holds(input_of(0, {4, 5})));
  });
}

// --- elements that share memory ---

TEST(Tensors, ExpandedTensorsCanBeReadAndNotWritten) {
  run_world(2, [](Communicator& comm) {
    const Tensor expanded = torch::full({1, 3}, comm.rank() + 1).expand({4, 3});
    EXPECT_TRUE(torch::equal(all_gather(comm, expanded)[1], torch::full({4, 3}, 2)));
    Tensor tensor = torch::zeros({4, 3}, torch::kInt64);
    broadcast(comm, comm.rank() == 0 ? expanded : tensor, 0);
    reduce(comm, comm.rank() == 0 ? tensor : expanded, ReduceOp::sum, 0);
    if (comm.rank() == 0) {
      EXPECT_TRUE(torch::equal(tensor, torch::full({4, 3}, 2)));
    }
    EXPECT_THAT([&] { all_reduce(comm, expanded); }, ::testing::ThrowsMessage<UsageError>(HasSubstr("share memory")));
  });
}

// --- autograd ---

TEST(Tensors, LeavesThatRequireGradChangeInPlace) {
  run_world(2, [](Communicator& comm) {
    for (const Layout layout : {Layout::contiguous, Layout::sliced})
      for (const bool async : {false, true}) {
        const Laid laid(layout, input_of(comm.rank(), {4, 5}));
        Tensor leaf = laid;
        leaf.set_requires_grad(true);
        if (async)
          all_reduce_async(comm, leaf).wait();
        else
          all_reduce(comm, leaf);
        EXPECT_TRUE(leaf.is_leaf() && leaf.requires_grad() && !leaf.grad_fn());
        EXPECT_TRUE(torch::equal(leaf, reduced(inputs_of_all(2, {4, 5}, torch::kFloat32), ReduceOp::sum)));
        (leaf * 3).sum().backward();
        EXPECT_TRUE(torch::equal(leaf.grad(), torch::full({4, 5}, 3.0F)));
        EXPECT_FALSE(all_gather(comm, leaf).requires_grad());
      }
  });
}

TEST(Tensors, ABackwardThatNeedsTheOldDataSaysSo) {
  run_world(2, [](Communicator& comm) {
    for (const Layout layout : {Layout::contiguous, Layout::transposed}) {
      const Laid laid(layout, input_of(comm.rank(), {4, 5}));
      Tensor leaf = laid;
      leaf.set_requires_grad(true);
      const Tensor squares = leaf * leaf;
      all_reduce(comm, leaf);
      EXPECT_THROW(squares.sum().backward(), c10::Error);
      const Tensor again = leaf * leaf;
      send_async(comm, comm.next_rank(), leaf).wait();
      recv(comm, comm.prev_rank(), torch::empty({4, 5}));
      EXPECT_NO_THROW(again.sum().backward());  // a send only reads
    }
  });
}

TEST(Tensors, InferenceModeAndWhatItMade) {
  run_world(2, [](Communicator& comm) {
    for (const Layout layout : {Layout::contiguous, Layout::transposed}) {
      std::optional<Laid> laid;
      {
        const c10::InferenceMode mode;
        laid.emplace(layout, input_of(comm.rank(), {4, 5}));
        all_reduce(comm, *laid);
      }
      all_reduce(comm, *laid);
      EXPECT_TRUE(laid->holds(reduced(inputs_of_all(2, {4, 5}, torch::kFloat32), ReduceOp::sum) * 2));
    }
  });
}

// --- works ---

TEST(TensorWorks, KeepTheirTensorsAndWriteBackOnce) {
  run_world(3, [](Communicator& comm) {
    std::vector<Tensor> results;
    std::vector<Work> works;
    for (int i = 0; i < 20; ++i) {
      Tensor tensor = (input_of(comm.rank(), {300, 7}) + i).t();
      if (i % 2 == 0) tensor = tensor.contiguous();
      works.push_back(all_reduce_async(comm, tensor));
      if (i < 18) results.push_back(tensor);  // nobody else holds the last two
    }
    for (Work& work : works) work.wait();
    for (int i = 0; i < 18; ++i)
      EXPECT_TRUE(torch::equal(results[static_cast<std::size_t>(i)],
                               (reduced(inputs_of_all(3, {300, 7}, torch::kFloat32), ReduceOp::sum) + 3 * i).t()));
    results[1].zero_();
    works[1].wait();
    EXPECT_EQ(results[1].abs().sum().item<float>(), 0.0F);
  });
}

TEST(TensorWorks, TheResultComesWithTheWait) {
  run_world(2, [](Communicator& comm) {
    const Laid tensor(Layout::sliced, torch::ones({3, 3}));
    Work work = all_reduce_async(comm, tensor);
    while (!work.done()) std::this_thread::yield();
    EXPECT_TRUE(tensor.holds(torch::ones({3, 3})));
    const Work copy = work;
    Work(copy).wait();
    EXPECT_TRUE(tensor.holds(torch::full({3, 3}, 2.0F)));
  });
}

TEST(TensorWorks, ToDropOneWaitsForIt) {
  run_world(2, [](Communicator& comm) {
    const auto start = Clock::now();
    if (comm.rank() == 1) std::this_thread::sleep_for(200ms);
    { const Work work = all_reduce_async(comm, torch::ones({1000, 7}).t()); }
    EXPECT_GE(Clock::now() - start, 150ms);
    comm.barrier();
  });
}

TEST(TensorWorks, AnExceptionDoesNotWait) {
  EXPECT_THROW(run_world(2,
                         [](Communicator& comm) {
                           if (comm.rank() == 1) {  // learns of the other's end in time
                             EXPECT_THROW(recv(comm, 0, torch::zeros({1})), PeerDied);
                             return;
                           }
                           const Work work = all_reduce_async(comm, torch::ones({1000, 7}).t());
                           throw std::out_of_range("the program's own");
                         }),
               std::out_of_range);
}

TEST(TensorWorks, FailEveryTimeAndLeaveTheTensor) {
  run_world(2, [](Communicator& comm) {
    if (comm.rank() == 1) return;
    const Laid tensor(Layout::transposed, torch::ones({3, 4}));
    Work work = all_reduce_async(comm, tensor);
    EXPECT_THROW(work.wait(), PeerDied);
    EXPECT_THROW(work.wait(), PeerDied);
    EXPECT_TRUE(tensor.holds(torch::ones({3, 4})));
  });
}

TEST(TensorWorks, ThatNeverBeganWriteNothing) {
  run_world(2, [](Communicator& comm) {
    const Laid part(Layout::transposed, torch::ones({3, 4}));
    EXPECT_THROW(static_cast<void>(reduce_scatter_async(comm, torch::ones({5}), part)), UsageError);
    EXPECT_TRUE(part.holds(torch::ones({3, 4})));
    comm.barrier();
  });
}

// --- what is refused ---

TEST(Refused, KindsOfTensors) {
  run_world(2, [](Communicator& comm) {
    const auto refused = [&](const Tensor& tensor, const std::string& why, const std::string& hint) {
      const auto as_said = ::testing::ThrowsMessage<UsageError>(::testing::AllOf(
          HasSubstr(fmt::format("rank {}: ", comm.rank())), HasSubstr(why), HasSubstr("try: " + hint)));
      const Tensor good = torch::ones({2, 2});
      EXPECT_THAT([&] { all_reduce(comm, tensor); }, as_said);
      EXPECT_THAT([&] { static_cast<void>(all_reduce_async(comm, tensor)); }, as_said);
      EXPECT_THAT([&] { all_reduce_mean(comm, tensor); }, as_said);
      EXPECT_THAT([&] { reduce(comm, tensor, ReduceOp::sum, 0); }, as_said);
      EXPECT_THAT([&] { broadcast(comm, tensor, 0); }, as_said);
      EXPECT_THAT([&] { scatter(comm, good, tensor, 0); }, as_said);
      EXPECT_THAT([&] { gather(comm, tensor, good, 0); }, as_said);
      EXPECT_THAT([&] { all_gather(comm, good, tensor); }, as_said);
      EXPECT_THAT([&] { static_cast<void>(all_gather(comm, tensor)); }, as_said);
      EXPECT_THAT([&] { reduce_scatter(comm, tensor, good); }, as_said);
      EXPECT_THAT([&] { all_to_all(comm, good, tensor); }, as_said);
      EXPECT_THAT([&] { send(comm, comm.next_rank(), tensor); }, as_said);
      EXPECT_THAT([&] { static_cast<void>(recv_async(comm, comm.next_rank(), tensor)); }, as_said);
      EXPECT_THAT([&] { as_buffer(tensor); },
                  ::testing::ThrowsMessage<UsageError>(::testing::AllOf(HasSubstr("as_buffer: "), HasSubstr(why))));
    };
    const Tensor ones = torch::ones({2, 2});
    refused({}, "undefined", "torch::zeros");
    refused(ones.to_sparse(), "Sparse", "tensor.to_dense()");
    refused(ones.to_sparse_csr(), "SparseCsr", "tensor.to_dense()");
    refused(torch::empty({2, 2}, torch::kMeta), "meta", "torch::empty_like");
    refused(torch::ones({2, 2}, torch::kBool), "Bool", "tensor.to(torch::kUInt8)");
    refused(torch::ones({2, 2}, torch::kInt16), "Short", "tensor.to(torch::kInt32)");
    refused(torch::ones({2, 2}, torch::kComplexFloat), "ComplexFloat", "torch::view_as_real");
    refused(torch::quantize_per_tensor(ones, 0.1, 0, torch::kQInt8), "QInt8", "tensor.dequantize()");

    Tensor sum = torch::ones({2, 2});
    all_reduce(comm, sum);  // the communicator is as good as before
    EXPECT_TRUE(torch::equal(sum, torch::full({2, 2}, 2.0F)));
  });
}

TEST(Refused, WhatTheCommunicatorRefuses) {
  run_world(2, [](Communicator& comm) {
    for (const auto type : {torch::kInt8, torch::kInt32, torch::kInt64, torch::kUInt8})
      EXPECT_THAT(
          [&] {
            all_reduce_mean(comm, torch::ones({2, 3}, type).t());
          },
          ::testing::ThrowsMessage<UsageError>(HasSubstr("mean")));
    EXPECT_THROW(all_gather(comm, torch::ones({2}), torch::ones({7})), UsageError);
    EXPECT_THROW(all_gather(comm, torch::ones({2}), torch::ones({4}, torch::kInt32)), UsageError);
    EXPECT_THROW(broadcast(comm, torch::ones({2}), 2), UsageError);
    EXPECT_THROW(as_buffer(torch::ones({2, 3}).t()), UsageError);
    comm.barrier();
  });
}

TEST(Refused, WhenRanksDisagreeAllHearOfIt) {
  const auto dumps = std::filesystem::path(::testing::TempDir()) / fmt::format("lockstep-tensor-test-{}", ::getpid());
  std::filesystem::create_directory(dumps);
  run_world(
      2,
      [](Communicator& comm) {
        const Tensor tensor = torch::ones({4, 3}, comm.rank() == 0 ? torch::kFloat32 : torch::kInt32).t();
        EXPECT_THROW(all_reduce(comm, tensor), Mismatch);
      },
      "shm", dumps);
  std::filesystem::remove_all(dumps);
}

// --- memory ---

TEST(Memory, AsBufferIsTheTensorItself) {
  Tensor tensor = torch::zeros({3, 4}, torch::kBFloat16);
  const Buffer buffer = as_buffer(tensor[1]);
  EXPECT_EQ(buffer.data, static_cast<std::byte*>(tensor.data_ptr()) + 4 * 2);
  EXPECT_EQ(buffer.count, 4U);
  EXPECT_EQ(buffer.dtype, DType::bfloat16);
}

int regions_mapped() {
  std::ifstream maps("/proc/self/maps");
  int found = 0;
  for (std::string line; std::getline(maps, line);)
    if (line.find("memfd:lockstep") != std::string::npos) ++found;
  return found;
}

TEST(Memory, ArenaTensorsOutliveTheCommunicator) {
  const int before = regions_mapped();
  std::array<Tensor, 3> kept;
  run_world(3, [&](Communicator& comm) {
    const Tensor tensor = allocate_tensor(comm, {5, 7});
    EXPECT_EQ(tensor.abs().sum().item<float>(), 0.0F);
    EXPECT_TRUE(comm.in_arena(tensor.data_ptr()) && comm.in_arena(tensor[3].data_ptr()));
    tensor.copy_(input_of(comm.rank(), {5, 7}));
    all_reduce(comm, tensor);
    kept[static_cast<std::size_t>(comm.rank())] = tensor.narrow(0, 1, 4);  // a view keeps it too
  });
  const Tensor expected = reduced(inputs_of_all(3, {5, 7}, torch::kFloat32), ReduceOp::sum).narrow(0, 1, 4);
  for (Tensor& tensor : kept) {
    EXPECT_TRUE(torch::equal(tensor, expected));
    tensor.fill_(1);
    EXPECT_EQ(tensor.sum().item<float>(), 28.0F);
  }
  EXPECT_GT(regions_mapped(), before);
  kept = {};
  EXPECT_EQ(regions_mapped(), before);
}

TEST(Memory, ArenaTensorsOfEveryTypeAndTransport) {
  for (const char* transport : {"shm", "tcp"})
    run_world(
        2,
        [&](Communicator& comm) {
          for (const auto type : kTypes)
            for (const std::vector<std::int64_t>& sizes :
                 {std::vector<std::int64_t>{}, {0}, {1}, {3, 0, 2}, {3, 4, 5}}) {
              const Tensor tensor = allocate_tensor(comm, sizes, type);
              EXPECT_EQ(tensor.sizes(), at::IntArrayRef(sizes));
              EXPECT_EQ(tensor.scalar_type(), type);
              tensor.copy_(input_of(comm.rank(), sizes, type));
              all_reduce_async(comm, tensor).wait();
              EXPECT_TRUE(torch::equal(tensor, reduced(inputs_of_all(2, sizes, type), ReduceOp::sum)));
            }
          EXPECT_THROW(static_cast<void>(allocate_tensor(comm, {2}, torch::kBool)), UsageError);
          EXPECT_THROW(static_cast<void>(allocate_tensor(comm, {2, -1})), UsageError);
          EXPECT_THROW(static_cast<void>(allocate_tensor(comm, {std::int64_t{1} << 40, std::int64_t{1} << 40})),
                       UsageError);
          comm.barrier();
        },
        transport);
}

// Needs 9 GB of memory: only where somebody asks for it. No sums here: torch would make 8 bytes of each.
TEST(Memory, MoreThan2GiB) {
  if (std::getenv("LOCKSTEP_LARGE_TESTS") == nullptr) GTEST_SKIP() << "LOCKSTEP_LARGE_TESTS is not set";
  run_world(2, [](Communicator& comm) {
    const std::int64_t columns = (std::int64_t{1} << 30) + 1;
    const Tensor around = torch::full({2, columns + 1}, 1 + comm.rank(), torch::kUInt8);
    const Tensor sliced = around.narrow(1, 0, columns);
    sliced[1][columns - 1] = 10 * (comm.rank() + 1);
    all_reduce(comm, sliced);
    EXPECT_EQ(sliced[1][columns - 1].item<int>(), 30);
    sliced[1][columns - 1] = 3;
    for (const Tensor& row : {sliced[0], sliced[1]})
      EXPECT_EQ(row.min().item<int>() * 256 + row.max().item<int>(), 0x303);
    around.fill_(comm.rank());
    if (comm.rank() == 1)
      send(comm, 0, around);
    else
      recv(comm, 1, around);
    EXPECT_EQ(around.min().item<int>(), 1);
  });
}

TEST(TensorMembers, AreTheFunctions) {
  thread_world(2, [](Communicator& comm) {
    const auto mine = torch::full({3}, 1.0 + comm.rank());
    auto sum = mine.clone();
    comm.all_reduce(sum);
    EXPECT_TRUE(torch::equal(sum, torch::full({3}, 3.0)));
    comm.all_reduce(sum, ReduceOp::mean);
    EXPECT_TRUE(torch::equal(sum, torch::full({3}, 3.0)));
    auto first = mine.clone();
    comm.broadcast_async(first, 1).wait();
    EXPECT_TRUE(torch::equal(first, torch::full({3}, 2.0)));
    EXPECT_TRUE(torch::equal(comm.all_gather(mine), torch::stack({torch::full({3}, 1.0), torch::full({3}, 2.0)})));
    auto received = torch::zeros({3});
    comm.scatter(torch::ones({6}), received, 0);
    if (comm.rank() == 0) comm.send(1, mine);
    if (comm.rank() == 1) comm.recv(0, received);
    EXPECT_TRUE(torch::equal(received, torch::ones({3})));
    std::vector<float> plain{1};
    comm.all_reduce(plain);  // spans and vectors are as they were
    EXPECT_EQ(plain[0], 2);
  });
}

}  // namespace
}  // namespace lockstep
