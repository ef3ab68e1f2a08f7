// Errors of data parallelism that name the model and the mistake.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/clock.h"
#include "lockstep/data_parallel.h"
#include "lockstep/error.h"
#include "lockstep/tensor.h"
#include "nets.h"

namespace lockstep {
namespace {

using namespace test;
using testing::AllOf;
using testing::Each;
using testing::HasSubstr;

std::vector<std::string> errors_of(int ranks, const std::function<void(Communicator&)>& body, Duration timeout = 30s) {
  std::vector<std::string> texts(static_cast<std::size_t>(ranks));
  comm::Options options;
  options.timeout = timeout;
  try {
    thread_world(
        ranks,
        [&](Communicator& comm) {
          try {
            body(comm);
          } catch (const std::exception& error) {
            texts[static_cast<std::size_t>(comm.rank())] = error.what();
            throw;
          }
        },
        {}, options);
  } catch (const std::exception&) {  // the texts are there
  }
  return texts;
}

TEST(Blame, TwoModelsInAnotherOrderOnOneRankAreNoticedWhenTheyAreMade) {
  const auto texts = errors_of(2, [](Communicator& comm) {
    const bool other = comm.rank() == 1;
    const DistributedDataParallel first(seeded<NetImpl>(1), comm, {.name = other ? "critic" : "generator"});
    const DistributedDataParallel second(seeded<NetImpl>(2), comm, {.name = other ? "generator" : "critic"});
  });
  EXPECT_THAT(texts,
              Each(AllOf(HasSubstr("DistributedDataParallel of generator"),
                         HasSubstr("DistributedDataParallel of critic"), HasSubstr("in the same order on all ranks"))));
}

TEST(Blame, AForwardOnOneRankOnlySaysThatItWaitsForBuffers) {
  const auto texts = errors_of(
      3,
      [](Communicator& comm) {
        torch::nn::Sequential net(torch::nn::Linear(4, 4), torch::nn::BatchNorm1d(4));
        DistributedDataParallel ddp(net, comm, {.name = "the sampler"});
        ddp.forward(torch::ones({8, 4})).sum().backward();
        if (comm.rank() == 0) ddp.forward(torch::ones({8, 4}));  // to print a sample
        std::this_thread::sleep_for(comm.rank() == 0 ? 0s : 4s);
      },
      1s);
  EXPECT_THAT(texts[0],
              AllOf(HasSubstr("rank 0: a forward of DistributedDataParallel of the sampler waits for its buffers"),
                    HasSubstr("waiting for rank"), HasSubstr("try: forward on all ranks; or, to look at a sample")));
}

// docs/ddp.md shows the loop.
TEST(Blame, BuffersDifferAfterTrainingUntilTheyAreBroadcast) {
  thread_world(2, [](Communicator& comm) {
    torch::nn::Sequential net(torch::nn::Linear(4, 4), torch::nn::BatchNorm1d(4));
    DistributedDataParallel ddp(net, comm);
    ddp.forward(torch::randn({8, 4}) + 10 * comm.rank()).sum().backward();
    const auto equal_on_all_ranks = [&] {
      bool equal = true;
      for (const torch::Tensor& buffer : net->buffers()) {
        const torch::Tensor all = comm.all_gather(buffer);
        equal = equal && torch::equal(all[0], all[1]);
      }
      return equal;
    };
    EXPECT_FALSE(equal_on_all_ranks());
    for (const torch::Tensor& buffer : net->buffers()) comm.broadcast(buffer, 0);
    EXPECT_TRUE(equal_on_all_ranks());
  });
}

}  // namespace
}  // namespace lockstep
