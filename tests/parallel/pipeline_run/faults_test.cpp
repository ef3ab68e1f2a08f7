// What goes wrong is named, with the place in the schedule.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>

#include "nets.h"

namespace lockstep::pipeline {
namespace {

using namespace test;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;
using ::testing::ThrowsMessage;

struct Rig {
  Rig(Communicator& comm, const Task& task, const Schedule& schedule)
      : part(part_of(task, schedule, comm.rank())), pipeline(comm, schedule, part.stages, task.loss) {}
  Part part;
  Executor pipeline;
};

TEST(Faults, AnotherShapeThanInTheFirstStep) {
  const Task task = mlp_task(12);
  run_world(2, [&](Communicator& comm) {
    Rig rig(comm, task, make_schedule("gpipe", 2, 3));
    const auto targets = cut_batch(task.targets, 3);
    rig.pipeline.step(cut_batch(task.inputs, 3), targets);
    std::vector<Tensor> inputs = cut_batch(task.inputs, 3);
    inputs[1] = inputs[1].slice(0, 0, 2);
    if (comm.rank() == 0) {
      EXPECT_THAT([&] { rig.pipeline.step(inputs, targets); },
                  ThrowsMessage<Mismatch>(AllOf(
                      HasSubstr("rank 0 sends the activation of microbatch 1 to stage 1 (rank 1) in step 1 "
                                "(action 3, 0SEND_F1): "),
                      HasSubstr("stage 0, microbatch 1 is Float [2, 6], but was Float [4, 6] in the first step"))));
      comm.abort("an activation of another shape");
    } else {
      EXPECT_THAT(
          [&] { rig.pipeline.step(inputs, targets); },
          ThrowsMessage<PeerDied>(HasSubstr("rank 1 waits for the activation of microbatch 1 from stage 0 (rank 0) "
                                            "in step 1 (action 2, 1RECV_F1): ")));
    }
  });
}

TEST(Faults, ALayerThatCannotTakeWhatItGets) {
  const Task task = mlp_task(12);
  run_world(1, [&](Communicator& comm) {
    Rig rig(comm, task, make_schedule("1f1b", 1, 2));
    EXPECT_THAT(
        [&] {
          rig.pipeline.step(cut_batch(torch::ones({12, 5}), 2), cut_batch(task.targets, 2));
        },
        ThrowsMessage<Error>(
            AllOf(HasSubstr("rank 0 computes the forward of microbatch 0 on stage 0 in step 0 (action 0, 0F0): "),
                  HasSubstr("shapes"))));
    // Nothing is left of it.
    EXPECT_TRUE(rig.pipeline.step(cut_batch(task.inputs, 2), cut_batch(task.targets, 2)).loss);
  });
}

TEST(Faults, AnotherCountOfMicrobatches) {
  const Task task = mlp_task(12);
  run_world(1, [&](Communicator& comm) {
    Rig rig(comm, task, make_schedule("1f1b", 1, 4));
    EXPECT_THAT([&] { rig.pipeline.step(cut_batch(task.inputs, 3), cut_batch(task.targets, 4)); },
                ThrowsMessage<UsageError>(HasSubstr("rank 0: 3 input microbatches, but schedule 1f1b has 4")));
    EXPECT_THAT([&] { rig.pipeline.step(cut_batch(task.inputs, 4), cut_batch(task.targets, 5)); },
                ThrowsMessage<UsageError>(HasSubstr("rank 0: 5 target microbatches, but schedule 1f1b has 4")));
  });
}

TEST(Faults, RanksWithDifferentSchedules) {
  const Task task = mlp_task(12);
  run_world(3, [&](Communicator& comm) {
    const Schedule schedule = make_schedule("1f1b", 3, comm.rank() == 2 ? 8 : 4);
    EXPECT_THAT([&] { Rig(comm, task, schedule); },
                ThrowsMessage<Mismatch>(AllOf(HasSubstr("rank 2 has another pipeline schedule"),
                                              HasSubstr("8 microbatches) than rank 0"), HasSubstr("4 microbatches)"))));
  });
}

TEST(Faults, AStageThatDies) {
  const Task task = mlp_task(12);
  // Ranks 0 and 2 can begin the second step while rank 1 still computes the first one.
  std::atomic<Clock::time_point> death{};
  run_world(3, [&](Communicator& comm) {
    Rig rig(comm, task, make_schedule("1f1b", 3, 4));
    const auto inputs = cut_batch(task.inputs, 4);
    const auto targets = cut_batch(task.targets, 4);
    rig.pipeline.step(inputs, targets);
    if (comm.rank() == 1) {
      death = Clock::now();
      return comm.abort("gone");
    }
    // Rank 0 may be at any action when it hears of it. Rank 2 waits for its first message.
    const std::string mine = comm.rank() == 0 ? "rank 0 "
                                              : "rank 2 waits for the activation of microbatch 0 from stage 1 (rank 1) "
                                                "in step 1 (action 0, 2RECV_F0): ";
    const auto start = Clock::now();
    EXPECT_THAT([&] { rig.pipeline.step(inputs, targets); },
                ThrowsMessage<PeerDied>(AllOf(StartsWith(mine), HasSubstr(" in step 1 (action "), HasSubstr("gone"),
                                              Not(HasSubstr(" tag ")))));
    EXPECT_LT(Clock::now() - std::max(start, death.load()), 1s);
  });
}

TEST(Faults, WhatDoesNotFit) {
  const Task task = mlp_task(12);
  run_world(1, [&](Communicator& comm) {
    const Part part = part_of(task, make_schedule("1f1b", 1, 2), 0);
    EXPECT_THAT([&] { Executor(comm, make_schedule("1f1b", 2, 2), part.stages, mse); },
                ThrowsMessage<UsageError>(HasSubstr("schedule 1f1b is for 2 ranks, and there are 1")));
    EXPECT_THAT([&] { Executor(comm, make_schedule("1f1b", 1, 2), {}, mse); },
                ThrowsMessage<UsageError>(HasSubstr("rank 0 has 1 stages in schedule 1f1b, but was given 0")));
    EXPECT_THAT([&] { Executor(comm, make_schedule("1f1b", 1, 30'000), part.stages, mse); },
                ThrowsMessage<UsageError>(HasSubstr("at most 21760 microbatches")));
    Schedule broken = make_schedule("1f1b", 1, 2);
    broken.actions[0].pop_back();
    EXPECT_THROW(Executor(comm, broken, part.stages, mse), UsageError);
  });
}

}  // namespace
}  // namespace lockstep::pipeline
