#include "lockstep/train/one_model.h"

#include "lockstep/base/clock.h"
#include "lockstep/trace.h"
#include "lockstep/train/criterion.h"
#include "lockstep/train/optimizer.h"

namespace lockstep::train {
namespace {

constexpr const char* kCategory = "train";

// Adds its lifetime to a phase, and records it in the trace.
class Phase {
 public:
  Phase(Communicator& comm, const char* name, double& seconds)
      : span_(comm.recorder(), name, kCategory), seconds_(seconds), began_(Clock::now()) {}
  ~Phase() { seconds_ += seconds_since(began_); }
  Phase(const Phase&) = delete;

 private:
  trace::Span span_;
  double& seconds_;
  Clock::time_point began_;
};

}  // namespace

OneModel::OneModel(const Setup& setup, int averaged_over) : setup_(setup), averaged_over_(averaged_over) {}

void OneModel::optimize(std::vector<torch::Tensor> parameters) {
  optimizer_ = make_optimizer(setup_.config.optimizer, setup_.config.lr, std::move(parameters));
}

void OneModel::backward(const torch::Tensor& loss, bool) { loss.backward(); }

StepResult OneModel::step(std::span<const data::Batch> microbatches) {
  StepResult result;
  Phases& phases = result.phases;
  const trace::Span span(setup_.comm.recorder(), "step", kCategory);
  const auto began = Clock::now();
  drop_gradients(*optimizer_);
  for (const data::Batch& batch : microbatches) {
    torch::Tensor loss;
    {
      const Phase phase(setup_.comm, "forward", phases.forward);
      loss = mean_loss(forward(batch.inputs), batch.targets);
    }
    const double share = batch.share();
    {
      const Phase phase(setup_.comm, "backward", phases.backward);
      const double weight = share * averaged_over_;
      backward(weight == 1 ? loss : loss * weight, &batch == &microbatches.back());
    }
    result.loss += loss.item<double>() * share;
  }
  average(phases);
  const auto averaged = Clock::now();
  if (setup_.before_optimizer) setup_.before_optimizer();
  const double looking = seconds_since(averaged);  // not part of the step
  {
    const Phase phase(setup_.comm, "optimizer", phases.optimizer);
    optimizer_->step();
  }
  result.seconds = seconds_since(began) - looking;
  return result;
}

}  // namespace lockstep::train
