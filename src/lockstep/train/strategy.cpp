#include "lockstep/train/strategy.h"

#include <algorithm>
#include <array>
#include <utility>

#include "lockstep/base/clock.h"
#include "lockstep/data_parallel.h"
#include "lockstep/error.h"
#include "lockstep/gradients.h"
#include "lockstep/manual.h"
#include "lockstep/parallel/data/parameters.h"
#include "lockstep/train/criterion.h"
#include "lockstep/train/ddp_options.h"
#include "lockstep/train/one_model.h"
#include "lockstep/train/optimizer.h"
#include "lockstep/train/pipeline_strategy.h"

namespace lockstep::train {
namespace {

// Each trained parameter once. libtorch's parameters() would list a tied weight twice, and an optimizer would then make
// two steps with it.
std::vector<torch::Tensor> trained(const torch::nn::Module& module) {
  std::vector<torch::Tensor> all;
  for (const auto& [name, tensor] : parallel::tensors_of(module).trained) all.push_back(tensor);
  return all;
}

// A model with the same weights that shares nothing with `model`. It is made anew, because clone() would untie weights.
std::shared_ptr<torch::nn::SequentialImpl> copy_of(const torch::nn::Module& model, const model::ModelConfig& config) {
  std::shared_ptr<torch::nn::SequentialImpl> copy = model::make_model(config).ptr();
  const torch::NoGradGuard no_grad;
  const auto from = model.parameters(), to = copy->parameters();
  for (std::size_t i = 0; i < to.size(); ++i) to[i].copy_(from[i]);
  return copy;
}

class Single final : public OneModel {
 public:
  explicit Single(const Setup& setup) : OneModel(setup, 1) { optimize(trained(*setup.model)); }
};

// Two copies of the model in this process, with half of the batch each.
class Manual final : public Strategy {
 public:
  explicit Manual(const Setup& setup)
      : model_(setup.model.ptr()),
        copy_(copy_of(*setup.model, setup.config.model)),
        optimizer_(make_optimizer(setup.config.optimizer, setup.config.lr, trained(*model_))),
        optimizer_of_copy_(make_optimizer(setup.config.optimizer, setup.config.lr, trained(*copy_))) {}

  StepResult step(std::span<const data::Batch> microbatches) override {
    StepResult result;
    ManualTimes times;
    const auto began = Clock::now();
    const auto loss_of = [&](torch::nn::SequentialImpl& model, Rank half) {
      return [&model, batch = data::slice(microbatches.front(), half, 2)] {
        return mean_loss(model.forward(batch.inputs), batch.targets) * (2 * batch.share());
      };
    };
    result.loss = manual_data_parallel_step({*model_, *optimizer_, loss_of(*model_, 0)},
                                            {*copy_, *optimizer_of_copy_, loss_of(*copy_, 1)}, &times)
                      .item<double>();
    result.seconds = seconds_since(began);
    // Nothing is sent here, but averaging is what the other strategies communicate for.
    result.phases = {.forward = times.forward,
                     .backward = times.backward,
                     .communication = times.averaging,
                     .exposed_communication = times.averaging,
                     .optimizer = times.optimizer};
    return result;
  }
  torch::nn::SequentialImpl& model() override { return *model_; }

 private:
  std::shared_ptr<torch::nn::SequentialImpl> model_, copy_;
  std::unique_ptr<torch::optim::Optimizer> optimizer_, optimizer_of_copy_;
};

// Two parts of the model in this process, with the hand-off done by hand.
class ManualPipeline final : public Strategy {
 public:
  explicit ManualPipeline(const Setup& setup) : setup_(setup) {
    for (const pipeline::Range& range : cut_of(setup.config, 2)) {
      parts_.push_back(pipeline::cut(*setup.model, range));
      optimizers_.push_back(make_optimizer(setup.config.optimizer, setup.config.lr, parts_.back()->parameters()));
    }
  }

  StepResult step(std::span<const data::Batch> microbatches) override {
    const data::Batch& batch = microbatches.front();
    StepResult result;
    pipeline::ManualPipelineTimes times;
    const auto began = Clock::now();
    result.loss = manual_pipeline_step(
                      {*parts_[0], *optimizers_[0]}, {*parts_[1], *optimizers_[1]}, batch.inputs,
                      [&](const auto& output) { return mean_loss(output, batch.targets); }, &times)
                      .item<double>();
    result.seconds = seconds_since(began);
    result.phases = {.forward = times.forward, .backward = times.backward, .optimizer = times.optimizer};
    return result;
  }
  torch::nn::SequentialImpl& model() override { return *setup_.model; }

 private:
  Setup setup_;
  std::vector<torch::nn::Sequential> parts_;
  std::vector<std::unique_ptr<torch::optim::Optimizer>> optimizers_;
};

class Naive final : public OneModel {
 public:
  explicit Naive(const Setup& setup) : OneModel(setup, setup.comm.size()), parameters_(trained(*setup.model)) {
    optimize(parameters_);
  }

 private:
  void average(Phases& phases) override {
    const auto began = Clock::now();
    average_gradients(parameters_, setup_.comm);
    phases.communication = phases.exposed_communication = seconds_since(began);
  }

  std::vector<torch::Tensor> parameters_;
};

class Hooks final : public OneModel {
 public:
  explicit Hooks(const Setup& setup)
      : OneModel(setup, setup.comm.size()), hooks_(register_ddp_hooks(*setup.model, setup.comm, &tracker_)) {
    optimize(trained(*setup.model));
  }

  void keep_backward() override { last_[kept_++ % last_.size()] = tracker_; }
  // That of the last steps whose communication ended in the median time.
  std::optional<BackwardRecord> backward_record() const override {
    std::vector<const HookTracker*> kept;
    for (const HookTracker& one : std::span(last_).first(std::min(kept_, kMost)))
      if (!one.rows().empty()) kept.push_back(&one);
    if (kept.empty()) return std::nullopt;
    const auto middle = kept.begin() + static_cast<std::ptrdiff_t>(kept.size() / 2);
    std::nth_element(kept.begin(), middle, kept.end(), [](const HookTracker* a, const HookTracker* b) {
      return a->rows().back().ended < b->rows().back().ended;
    });
    BackwardRecord record{.end = (*middle)->backward_end(), .table = (*middle)->table()};
    for (const HookTracker::Row& row : (*middle)->rows())
      record.travels.push_back({row.parameter, row.bytes, row.ready, row.began, row.ended});
    return record;
  }

 private:
  void average(Phases& phases) override {
    double end = tracker_.backward_end();
    for (const HookTracker::Row& row : tracker_.rows()) end = std::max(end, row.ended);
    phases.communication = tracker_.communication();
    phases.overlapped = tracker_.overlapped();
    phases.exposed_communication = end - tracker_.backward_end();
    phases.backward -= phases.exposed_communication;
  }

  static constexpr std::size_t kMost = 31;

  HookTracker tracker_;
  std::array<HookTracker, kMost> last_;  // of the last steps, in no order
  std::size_t kept_ = 0;
  DdpHooks hooks_;  // declared after the tracker, which the hooks use
};

class Ddp final : public OneModel {
 public:
  explicit Ddp(const Setup& setup)
      : OneModel(setup, setup.comm.size()), ddp_(setup.model.ptr(), setup.comm, ddp_options(setup.config)) {
    optimize(ddp_.parameters());
  }
  void sync() override { ddp_.sync(); }
  std::optional<BackwardRecord> backward_record() const override {
    if (setup_.comm.size() == 1) return std::nullopt;  // nothing travels
    BackwardRecord record{.end = ddp_.statistics().backward, .overlaps = ddp_.statistics().overlaps};
    for (const auto& bucket : ddp_.statistics().buckets)
      record.travels.push_back({"", bucket.bytes, bucket.ready, bucket.began, bucket.ended});
    return record;
  }

 private:
  torch::Tensor forward(const torch::Tensor& inputs) override {
    const auto began = Clock::now();
    torch::Tensor output = ddp_.forward(inputs);
    waited_ += seconds_since(began) - ddp_.statistics().forward;
    return output;
  }
  void backward(const torch::Tensor& loss, bool last) override {
    if (last) return loss.backward();
    const auto guard = ddp_.no_sync();
    loss.backward();
  }
  void average(Phases& phases) override {
    const double after_backward = ddp_.statistics().exposed_communication;
    phases.communication = ddp_.statistics().communication + waited_;
    phases.overlapped = ddp_.statistics().overlapped_communication;
    phases.exposed_communication = after_backward + waited_;
    phases.backward -= after_backward;
    phases.forward -= std::exchange(waited_, 0);
  }

  DistributedDataParallel<torch::nn::SequentialImpl> ddp_;
  double waited_ = 0;  // seconds of this step, before forward, of waiting for parameters and buffers of other ranks
};

}  // namespace

std::unique_ptr<Strategy> make_strategy(const Setup& setup) {
  switch (setup.config.strategy) {
    case StrategyKind::single:
      return std::make_unique<Single>(setup);
    case StrategyKind::manual:
      return std::make_unique<Manual>(setup);
    case StrategyKind::naive:
      return std::make_unique<Naive>(setup);
    case StrategyKind::hooks:
      return std::make_unique<Hooks>(setup);
    case StrategyKind::ddp:
    case StrategyKind::sharded:
      return std::make_unique<Ddp>(setup);
    case StrategyKind::manual_pipeline:
      return std::make_unique<ManualPipeline>(setup);
    case StrategyKind::pipeline:
      return make_pipeline(setup);
  }
  throw Error("a strategy that no enumerator names");
}

}  // namespace lockstep::train
