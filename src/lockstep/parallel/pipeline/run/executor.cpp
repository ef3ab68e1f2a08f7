#include "lockstep/parallel/pipeline/run/executor.h"

#include <fmt/format.h>
#include <algorithm>
#include <unordered_map>
#include <utility>

#include "lockstep/error.h"
#include "lockstep/parallel/pipeline/run/with_position.h"
#include "lockstep/parallel/pipeline/schedule/csv.h"
#include "lockstep/parallel/pipeline/schedule/tags.h"
#include "lockstep/parallel/pipeline/schedule/verify.h"
#include "lockstep/parallel/pipeline/schedule/words.h"
#include "lockstep/trace.h"

namespace lockstep::pipeline {
namespace {

using torch::Tensor;

// FNV-1a, which gives the same number for the same text in every build.
std::int64_t fingerprint(const std::string& text) {
  std::uint64_t hash = 14'695'981'039'346'656'037U;
  for (const char letter : text) hash = (hash ^ static_cast<unsigned char>(letter)) * 1'099'511'628'211U;
  return static_cast<std::int64_t>(hash);
}

}  // namespace

Executor::Executor(Communicator& comm, const Schedule& schedule, std::vector<std::shared_ptr<Stage>> stages,
                   LossFunction loss)
    : comm_(comm), loss_(std::move(loss)) {
  if (schedule.ranks != comm.size())
    throw UsageError(
        fmt::format("schedule {} is for {} ranks, and there are {}", schedule.name, schedule.ranks, comm.size()),
        fmt::format("make_schedule(\"{}\", {}, ...)", schedule.name, comm.size()));
  schedule_ = verify(schedule).lowered;
  check_tags(schedule_);
  check_same_everywhere();

  std::size_t next = 0;
  for (int stage = 0; stage < schedule_.stages; ++stage) {
    const bool mine = has(stage);
    stages_.push_back(mine && next < stages.size() ? stages[next] : nullptr);
    if (mine) ++next;
  }
  if (next != stages.size() || std::find(stages.begin(), stages.end(), nullptr) != stages.end())
    throw UsageError(fmt::format("rank {} has {} stages in schedule {}, but was given {}", comm.rank(), next,
                                 schedule_.name, stages.size()),
                     "a stage for each number that rank_of_stage gives this rank");
  for (const Action& action : schedule_.actions[static_cast<std::size_t>(comm.rank())])
    if (action.kind == Kind::I) splits_.insert(action);
}

void Executor::check_same_everywhere() const {
  constexpr std::size_t kNumbers = 3;
  const auto ranks = static_cast<std::size_t>(comm_.size());
  const std::vector<std::int64_t> mine{fingerprint(to_csv(schedule_)), schedule_.stages, schedule_.microbatches};
  std::vector<std::int64_t> all(ranks * kNumbers);
  comm_.all_gather(ConstBuffer(mine.data(), mine.size(), DType::int64), Buffer(all.data(), all.size(), DType::int64));
  const auto of = [&](std::size_t rank) { return all.begin() + static_cast<std::ptrdiff_t>(rank * kNumbers); };
  for (std::size_t rank = 1; rank < ranks; ++rank)
    if (!std::equal(of(0), of(1), of(rank)))
      throw Mismatch(fmt::format("rank {} has another pipeline schedule ({} stages, {} microbatches) than rank 0 ({} "
                                 "stages, {} microbatches)",
                                 rank, of(rank)[1], of(rank)[2], of(0)[1], of(0)[2]),
                     "the same schedule, stages and microbatches on all ranks");
}

void Executor::check_count(const char* what, std::size_t count) const {
  if (count != static_cast<std::size_t>(schedule_.microbatches))
    throw UsageError(fmt::format("pipeline step {}, rank {}: {} {} microbatches, but schedule {} has {}", steps_,
                                 comm_.world_rank(), count, what, schedule_.name, schedule_.microbatches),
                     fmt::format("cut_batch(batch, {})", schedule_.microbatches));
}

void Executor::new_shapes() {
  shapes_.clear();
  buffers_.clear();
  shapes_are_known_ = false;
}

// One step. If an exception is thrown, this object is destroyed, and with it everything that was in flight.
class Executor::Run {
 public:
  Run(Executor& executor, const std::vector<Tensor>& inputs, const std::vector<Tensor>& targets)
      : executor_(executor),
        inputs_(inputs),
        targets_(targets),
        messages_(executor.comm_, executor.schedule_, executor.shapes_, executor.buffers_,
                  !executor.shapes_are_known_) {
    for (const Tensor& target : targets) rows_ += static_cast<double>(target.size(0));
    rows_ = std::max(rows_, 1.0);  // one of several pipelines may have no rows; then all its shares are 0
  }

  ExecutedStep run() {
    const auto& list = executor_.schedule_.actions[static_cast<std::size_t>(executor_.comm_.rank())];
    std::size_t step = 0;
    const auto where = [&] { return position(step); };
    result_.timeline.began = Clock::now();
    for (; step < list.size(); ++step)
      with_position(executor_.comm_, where, [&] {
        const trace::Span span(executor_.comm_.recorder(), name_of(list[step].kind).data(), "pipeline",
                               {{"stage", list[step].stage}, {"microbatch", list[step].microbatch}});
        messages_.post_ahead(step);
        const auto began = Clock::now();
        perform(step, list[step]);
        result_.timeline.moments.push_back({list[step], began, Clock::now()});
        messages_.collect(step);
      });
    with_position(executor_.comm_, where, [&] { messages_.finish(); });
    result_.timeline.ended = Clock::now();
    return std::move(result_);
  }

 private:
  // As in "waits for the activation of microbatch 3 from stage 0 (rank 0) in step 12 (action 7, 1RECV_F3)".
  std::string position(std::size_t step) const {
    const auto& list = executor_.schedule_.actions[static_cast<std::size_t>(executor_.comm_.rank())];
    const bool at_end = step == list.size();
    return fmt::format("{} in step {} (action {}, {})",
                       at_end ? "waits until its messages are sent" : words_for(list[step]), executor_.steps_, step,
                       at_end ? "end" : pipeline::to_string(list[step]));
  }

  std::string words_for(const Action& action) const {
    if (!is_message(action.kind)) return in_words(action, 0);
    const int stage = other_end(action).stage;
    const Rank peer = executor_.schedule_.rank_of_stage[index_of(stage)];
    return in_words(action, executor_.comm_.world_rank(peer));
  }

  // region perform
  void perform(std::size_t step, const Action& action) {
    const auto [number, kind, microbatch] = action;
    Stage& stage = *executor_.stages_[static_cast<std::size_t>(number)];
    switch (kind) {
      case Kind::F:
        return forward(stage, action);
      case Kind::B:
        return pass_back(action, stage.backward(microbatch, gradient_for(action)));
      case Kind::I:
        return pass_back(action, stage.input_gradient(microbatch, gradient_for(action)));
      case Kind::W:
        return stage.weight_gradient(microbatch);
      case Kind::RECV_F:
        put({number, Kind::F, microbatch}, messages_.receive(step));
        return;
      case Kind::RECV_B:
        put({number, Kind::B, microbatch}, messages_.receive(step));
        return;
      case Kind::SEND_F:
      case Kind::SEND_B:
        return messages_.send(action, take(action));
    }
  }
  // endregion

  void forward(Stage& stage, const Action& action) {
    const auto [number, kind, microbatch] = action;
    const auto m = static_cast<std::size_t>(microbatch);
    const bool last = number + 1 == executor_.schedule_.stages;
    const Activation input = number == 0 ? Activation(inputs_[m]) : take(action);
    if (!std::exchange(has_begun_, true) && executor_.before_first_forward_) executor_.before_first_forward_();
    const bool split = executor_.splits_.contains({number, Kind::I, microbatch});
    const Activation output =
        stage.forward(microbatch, input, split ? Backward::split : Backward::whole, last ? tail(targets_[m]) : Tail());
    count_activations();
    if (last)
      add_loss(output);
    else if (executor_.has(number + 1))
      put({number + 1, Kind::F, microbatch}, output);
    else
      put({number, Kind::SEND_F, microbatch}, output);
  }

  // region tail
  Tail tail(const Tensor& target) const {
    const double share = static_cast<double>(target.size(0)) / rows_;
    if (share == 0)
      return [](const Tensor& output) { return output.sum() * 0; };  // a mean over no rows is not a number
    return [&loss = executor_.loss_, target, share](const Tensor& output) { return loss(output, target) * share; };
  }
  // endregion

  void add_loss(const Tensor& loss) {
    losses_.push_back(loss);
    if (losses_.size() < targets_.size()) return;
    result_.loss = 0;
    for (const Tensor& each : losses_) *result_.loss += each.item<double>();
    if (executor_.on_loss_) executor_.on_loss_(*result_.loss);
  }

  Activation gradient_for(const Action& action) {
    if (action.stage + 1 == executor_.schedule_.stages) return {};
    return take({action.stage, Kind::B, action.microbatch});
  }

  void pass_back(const Action& action, const Activation& gradient) {
    if (action.stage == 0) return;
    if (executor_.has(action.stage - 1))
      put({action.stage - 1, Kind::B, action.microbatch}, gradient);
    else
      put({action.stage, Kind::SEND_B, action.microbatch}, gradient);
  }

  // Activations and gradients on their way between two actions of this rank, by the action that will take them. For I,
  // the key is B.
  void put(const Action& taker, const Activation& activation) { waiting_[taker] = activation; }
  Activation take(const Action& taker) {
    auto node = waiting_.extract(taker);
    return node.empty() ? Activation() : std::move(node.mapped());
  }

  void count_activations() {
    int live = 0;
    for (const auto& stage : executor_.stages_)
      if (stage) live += stage->live();
    result_.peak_activations = std::max(result_.peak_activations, live);
  }

  Executor& executor_;
  const std::vector<Tensor>& inputs_;
  const std::vector<Tensor>& targets_;
  double rows_ = 0;
  Messages messages_;
  std::unordered_map<Action, Activation> waiting_;
  std::vector<Tensor> losses_;
  bool has_begun_ = false;
  ExecutedStep result_;
};

Activation Executor::infer(const Tensor& input) {
  Activation value = input;
  for (int number = 0; number < schedule_.stages; ++number) {
    if (!has(number)) continue;
    const auto n = static_cast<std::size_t>(number);
    with_position(
        comm_, [&] { return fmt::format("computes stage {} of an inference", number); },
        [&] {
          if (number > 0 && !has(number - 1)) value = receive_whole(comm_, schedule_.rank_of_stage[n - 1], number);
          value = stages_[n]->infer(value);
          if (number + 1 < schedule_.stages && !has(number + 1))
            send_whole(comm_, schedule_.rank_of_stage[n + 1], value, number + 1);
        });
  }
  return has_last_stage() ? value : Activation();
}

ExecutedStep Executor::step(const std::vector<Tensor>& inputs, const std::vector<Tensor>& targets) {
  if (has_first_stage()) check_count("input", inputs.size());
  if (has_last_stage()) check_count("target", targets.size());
  for (const auto& stage : stages_)
    if (stage) stage->clear();  // removes what a failed step has left
  ExecutedStep result = Run(*this, inputs, targets).run();
  shapes_are_known_ = true;
  ++steps_;
  return result;
}

}  // namespace lockstep::pipeline
