#include "lockstep/gradients.h"

#include <fmt/format.h>
#include <algorithm>

#include "lockstep/error.h"
#include "lockstep/parallel/data/autograd.h"
#include "lockstep/parallel/data/parameters.h"
#include "lockstep/tensor.h"

namespace lockstep {
namespace {

double seconds(Duration duration) { return std::chrono::duration<double>(duration).count(); }

}  // namespace

struct DdpHooks::State {
  struct Flying {
    std::size_t parameter;
    Clock::time_point ready;
    Work work;
  };

  Communicator* comm = nullptr;
  HookTracker* tracker = nullptr;
  std::vector<parallel::Named> parameters;
  std::vector<Flying> flying;  // in the order in which the hooks ran
  parallel::GradientHooks hooks{parallel::GradientHooks::Purpose::average};

  // region hook
  // Called when a gradient has been accumulated: its all-reduce begins, and backward continues.
  void ready(std::size_t parameter) {
    check(parameter);
    if (flying.empty()) parallel::at_end_of_backward([this] { finish(); });
    const torch::NoGradGuard no_grad;
    const torch::Tensor gradient = parameters[parameter].tensor.grad();
    flying.push_back({parameter, Clock::now(), all_reduce_mean_async(*comm, gradient)});
  }

  // Called at the end of backward, which returns when the last all-reduce is done.
  void finish() {
    const auto backward_end = Clock::now();
    std::vector<Flying> landed;
    std::swap(landed, flying);
    for (Flying& each : landed) each.work.wait();
    if (tracker != nullptr) note(landed, backward_end);
  }
  // endregion

  void check(std::size_t parameter) const {
    const auto& [name, tensor] = parameters[parameter];
    if (!tensor.grad().defined())
      throw UsageError(fmt::format("rank {}: autograd brought no gradient for {}", comm->world_rank(), name),
                       "DistributedDataParallel with allow_unused");
    if (std::any_of(flying.begin(), flying.end(), [&](const Flying& each) { return each.parameter == parameter; }))
      throw UsageError(fmt::format("rank {}: the gradient of {} came a second time before the end of backward",
                                   comm->world_rank(), name),
                       "new hooks on every rank, if the last backward ended by an exception");
  }

  void note(std::vector<Flying>& landed, Clock::time_point backward_end) const {
    tracker->rows_.clear();
    const auto zero = landed.front().ready;
    tracker->backward_end_ = seconds(backward_end - zero);
    for (Flying& each : landed) {
      const Work::Times times = each.work.times();
      const auto& [name, tensor] = parameters[each.parameter];
      tracker->rows_.push_back({name, tensor.nbytes(), seconds(each.ready - zero), seconds(times.began - zero),
                                seconds(times.ended - zero)});
    }
  }
};

DdpHooks::DdpHooks(const torch::nn::Module& module, Communicator& comm, HookTracker* tracker)
    : state_(std::make_unique<State>()) {
  state_->comm = &comm;
  state_->tracker = tracker;
  state_->parameters = parallel::tensors_of(module).trained;
  for (std::size_t i = 0; i < state_->parameters.size(); ++i)
    state_->hooks.add(state_->parameters[i].tensor, [state = state_.get(), i] { state->ready(i); });
}
DdpHooks::~DdpHooks() = default;
DdpHooks::DdpHooks(DdpHooks&&) noexcept = default;
DdpHooks& DdpHooks::operator=(DdpHooks&&) noexcept = default;

double HookTracker::communication() const {
  double sum = 0;
  for (const Row& row : rows_) sum += row.ended - row.began;
  return sum;
}

double HookTracker::overlapped() const {
  double sum = 0;
  for (const Row& row : rows_) sum += std::max(0.0, std::min(row.ended, backward_end_) - row.began);
  return sum;
}

std::string HookTracker::table() const {
  if (rows_.empty()) return "no backward yet\n";
  constexpr int kLine = 80, kNumbers = 41;  // characters of a line, and how many of them its numbers take
  double end = backward_end_;
  std::size_t longest = 9;
  for (const Row& row : rows_) {
    end = std::max(end, row.ended);
    longest = std::max(longest, row.parameter.size());
  }
  const int width = std::max(16, kLine - kNumbers - static_cast<int>(longest));
  const auto column = [&](double at) {
    return std::clamp(static_cast<int>(at / std::max(end, 1e-9) * width), 0, width - 1);
  };
  std::string text =
      fmt::format(". ready   = communication   | end of backward\n\n{:<{}}  {:>9}  {:>8}  {:>8}  {:>8}\n", "parameter",
                  longest, "bytes", "ready us", "began us", "ended us");
  for (const Row& row : rows_) {
    std::string bar(static_cast<std::size_t>(width), ' ');
    bar[index_of(column(row.ready))] = '.';
    for (int at = column(row.began); at <= column(row.ended); ++at) bar[static_cast<std::size_t>(at)] = '=';
    const auto edge = static_cast<std::size_t>(column(backward_end_));
    if (bar[edge] == ' ') bar[edge] = '|';
    text += fmt::format("{:<{}}  {:>9}  {:>8.0f}  {:>8.0f}  {:>8.0f}  {}\n", row.parameter, longest, row.bytes,
                        row.ready * 1e6, row.began * 1e6, row.ended * 1e6, bar);
  }
  const double all = communication();
  text += fmt::format("{:.2f} ms of communication, {:.2f} ms ({:.0f}%) of it while backward ran\n", all * 1e3,
                      overlapped() * 1e3, all > 0 ? 100 * overlapped() / all : 100.0);
  return text;
}

}  // namespace lockstep
