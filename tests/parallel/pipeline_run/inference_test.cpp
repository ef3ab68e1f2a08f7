// One batch through all stages, without gradients: the output of the whole network, bit for bit.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/container/functional.h>

#include "lockstep/error.h"
#include "lockstep/parallel/pipeline/schedule/csv.h"
#include "nets.h"

namespace lockstep::pipeline {
namespace {

using namespace test;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

struct Rig {
  Rig(Communicator& comm, const Task& task, const Schedule& schedule)
      : part(part_of(task, schedule, comm.rank())), pipeline(comm, schedule, part.stages, task.loss) {}
  Part part;
  Executor pipeline;
};

Tensor output_of(const Task& task, const Tensor& input) {
  const torch::NoGradGuard no_grad;
  return seeded(task.make)->forward(input);
}

void expect_output(Executor& pipeline, const Tensor& input, const Tensor& want) {
  const Tensor output = pipeline.infer(pipeline.has_first_stage() ? input : Tensor());
  ASSERT_EQ(output.defined(), pipeline.has_last_stage());
  if (!output.defined()) return;
  EXPECT_TRUE(close(output, want));
  EXPECT_FALSE(output.requires_grad());
}

// Stages of all widths; the gradient of what travels is the activation's transpose.
Task odd_task() {
  return seeded([] {
    using namespace torch::nn;
    const auto make = [] {
      return Sequential(Linear(5, 7), Tanh(), Linear(7, 1), Linear(1, 13), ReLU(),
                        Functional([](const Tensor& x) { return x.t().contiguous().t(); }), Linear(13, 3),
                        Linear(3, 11));
    };
    return Task{make, torch::randn({6, 5}), torch::randn({6, 11}), mse};
  });
}

TEST(Inference, EverySchedulesPlacement) {
  const Task task = mlp_task();
  for (const std::string& name : schedule_names())
    for (int ranks = 1; ranks <= 4; ++ranks) {
      SCOPED_TRACE(fmt::format("{} on {}", name, ranks));
      const Schedule schedule = make_schedule(name, ranks, 4);
      run_world(ranks, [&](Communicator& comm) {
        Rig rig(comm, task, schedule);
        for (const std::int64_t rows : {13, 1, 0}) {
          const Tensor input = task.inputs.narrow(0, 0, rows);
          expect_output(rig.pipeline, input, output_of(task, input));
        }
      });
    }
}

TEST(Inference, StagesThatLieAnyhow) {
  const Task task = mlp_task();
  for (const char* csv : {"0F0,3F0,3B0,0B0\n1F0,2F0,2B0,1B0\n", "1F0,2F0,2B0,1B0\n0F0,3F0,3B0,0B0\n"})
    run_world(2, [&](Communicator& comm) {
      Rig rig(comm, task, from_csv(csv, "v"));
      expect_output(rig.pipeline, task.inputs, output_of(task, task.inputs));
    });
}

TEST(Inference, OddWidthsAndImages) {
  for (const Task& task : {odd_task(), cnn_task()})
    for (int ranks = 1; ranks <= 4; ++ranks)
      run_world(ranks, [&](Communicator& comm) {
        Rig rig(comm, task, make_schedule("gpipe", ranks, 2));
        expect_output(rig.pipeline, task.inputs, output_of(task, task.inputs));
      });
}

TEST(Inference, BetweenSteps) {
  for (const std::string& name : schedule_names()) {
    SCOPED_TRACE(name);
    const Task task = mlp_task(12);
    const Trained alone = train_alone(task, 6);
    std::vector<double> losses;
    run_world(3, [&](Communicator& comm) {
      Rig rig(comm, task, make_schedule(name, 3, 3));
      auto optimizer = sgd(rig.part.parameters, task.rate);
      expect_output(rig.pipeline, task.inputs, output_of(task, task.inputs));  // before any step
      for (int step = 0; step < 6; ++step) {
        optimizer.zero_grad();
        const auto result = rig.pipeline.step(cut_batch(task.inputs, 3), cut_batch(task.targets, 3));
        optimizer.step();
        // The loss of the next step, from rows in another number than the step has.
        const Tensor output = rig.pipeline.infer(task.inputs);
        for (const auto& stage : rig.part.stages) EXPECT_EQ(stage->live(), 0);
        if (!result.loss) continue;
        EXPECT_TRUE(close(*result.loss, alone.losses[static_cast<std::size_t>(step)]));
        losses.push_back(mse(output, task.targets).item<double>());
      }
    });
    ASSERT_EQ(losses.size(), 6U);
    for (std::size_t step = 0; step + 1 < losses.size(); ++step)
      EXPECT_TRUE(close(losses[step], alone.losses[step + 1])) << step;
  }
}

TEST(Inference, WrongInputIsNamedWithItsPlace) {
  const Task task = mlp_task();
  run_world(2, [&](Communicator& comm) {
    Rig rig(comm, task, make_schedule("interleaved", 2, 2));
    if (comm.rank() == 0) {
      EXPECT_THAT(
          [&] {
            rig.pipeline.infer(torch::ones({3, 5}));
          },
          ThrowsMessage<Error>(AllOf(HasSubstr("rank 0 computes stage 0 of an inference: "), HasSubstr("shapes"))));
      comm.abort("no such input");
    } else {
      EXPECT_THAT([&] { rig.pipeline.infer({}); },
                  ThrowsMessage<PeerDied>(HasSubstr("rank 1 computes stage 1 of an inference: ")));
    }
  });
}

TEST(Inference, AStageThatCannotTakeWhatItGetsIsTheOneNamed) {
  const Task task = mlp_task();
  run_world(2, [&](Communicator& comm) {
    const Schedule schedule = make_schedule("1f1b", 2, 2);
    Part part = part_of(task, schedule, comm.rank());
    const Sequential other(torch::nn::Linear(7, 2));
    if (comm.rank() == 1) part.stages = {std::make_shared<SequentialStage>(*other)};
    Executor pipeline(comm, schedule, part.stages, task.loss);
    if (comm.rank() == 0)
      EXPECT_FALSE(pipeline.infer(task.inputs).defined());
    else
      EXPECT_THAT(
          [&] { pipeline.infer({}); },
          ThrowsMessage<Error>(AllOf(HasSubstr("rank 1 computes stage 1 of an inference: "), HasSubstr("shapes"))));
    comm.barrier();
  });
}

}  // namespace
}  // namespace lockstep::pipeline
