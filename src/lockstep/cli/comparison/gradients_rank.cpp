// `lockstep compare hooks` and `lockstep compare buckets`: the ranks that train.
#include <fmt/format.h>
#include <torch/optim/adam.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <thread>

#include "lockstep/base/clock.h"
#include "lockstep/base/quantile.h"
#include "lockstep/cli/comparison/gradients.h"
#include "lockstep/cli/comparison/model_flags.h"
#include "lockstep/communicator.h"
#include "lockstep/data.h"
#include "lockstep/data_parallel.h"
#include "lockstep/error.h"
#include "lockstep/gradients.h"
#include "lockstep/model.h"
#include "lockstep/train/criterion.h"
#include "lockstep/train/feed.h"

namespace lockstep::cli::comparison {
namespace {

using nlohmann::json;

constexpr int kWarmUp = 3;

// One way of training the model. All of them start from the same weights and see the same batch.
class Contender {
 public:
  Contender(std::string name, const GradientOptions& options, Communicator& comm)
      : comm_(comm), name_(std::move(name)), model_(seeded(options)) {
    if (options.device_seconds > 0) wait_as_for_a_device(options.device_seconds);
    mine_ = data::slice(sample_of(options), comm.rank(), comm.size());
  }
  virtual ~Contender() = default;
  Contender(const Contender&) = delete;

  void step() {
    comm_.barrier();  // so that no contender waits for what the previous one has left unfinished
    const auto began = Clock::now();
    optimizer_->zero_grad();
    const auto loss = train::mean_loss(forward(mine_.inputs), mine_.targets);
    const auto forward_end = Clock::now();
    loss.backward();
    exposed_ = 0;
    average();
    backward_.push_back(seconds_since(forward_end) - exposed_);
    optimizer_->step();
    steps_.push_back(seconds_since(began));
    exposures_.push_back(exposed_);
    communications_.push_back(communication_);
    overlaps_.push_back(overlapped_);
    keep();
  }
  virtual void forget() {
    for (auto* all : {&steps_, &backward_, &communications_, &overlaps_, &exposures_}) all->clear();
  }

  json row() const {
    const double communication = median(communications_);
    json row = {{"name", name_},
                {"step_ms", 1e3 * median(steps_)},
                {"backward_ms", 1e3 * median(backward_)},
                {"communication_ms", 1e3 * communication},
                {"exposed_ms", 1e3 * median(exposures_)},
                {"overlap", communication > 0 ? median(overlaps_) / communication : 0}};
    describe(row);
    return row;
  }

 protected:
  virtual torch::Tensor forward(const torch::Tensor& x) { return model_->forward(x); }
  virtual void average() = 0;  // sets communication_, overlapped_ and exposed_
  virtual void keep() {}       // keeps what a step has recorded, outside of its time
  virtual void describe(json& /*row*/) const {}

  void optimize(std::vector<torch::Tensor> parameters) {
    optimizer_ = std::make_unique<torch::optim::Adam>(std::move(parameters), torch::optim::AdamOptions(1e-3));
  }

  Communicator& comm_;
  std::string name_;
  torch::nn::Sequential model_;
  double communication_ = 0;
  double overlapped_ = 0;
  double exposed_ = 0;

 private:
  // Waits in the backward of every layer, before the gradient of its weights is there.
  void wait_as_for_a_device(double seconds) {
    for (const torch::Tensor& parameter : model_->parameters())
      if (parameter.dim() > 1)
        parameter.register_hook([time = std::chrono::duration<double>(seconds)](const torch::Tensor& gradient) {
          std::this_thread::sleep_for(time);
          return gradient;
        });
  }

  static torch::nn::Sequential seeded(const GradientOptions& options) {
    torch::manual_seed(42);
    return model::make_model(options.model);
  }
  static data::Batch sample_of(const GradientOptions& options) {
    train::TrainingConfig config;
    config.model = options.model;
    return train::sample_of(train::checked(config), options.batch);
  }

  data::Batch mine_;
  std::unique_ptr<torch::optim::Adam> optimizer_;
  std::vector<double> steps_, backward_, communications_, overlaps_, exposures_;
};

class AfterBackward final : public Contender {
 public:
  AfterBackward(const GradientOptions& options, Communicator& comm) : Contender("after backward", options, comm) {
    optimize(model_->parameters());
  }

 private:
  void average() override {
    const auto began = Clock::now();
    average_gradients(model_->parameters(), comm_);
    communication_ = exposed_ = seconds_since(began);
  }
};

class WithHooks final : public Contender {
 public:
  WithHooks(const GradientOptions& options, Communicator& comm)
      : Contender("hooks", options, comm), hooks_(register_ddp_hooks(*model_, comm, &tracker_)) {
    optimize(model_->parameters());
  }
  void forget() override {
    Contender::forget();
    kept_.clear();
  }
  // The record of the step that took the median time.
  const HookTracker& typical() {
    const auto middle = kept_.begin() + static_cast<std::ptrdiff_t>(kept_.size() / 2);
    std::nth_element(kept_.begin(), middle, kept_.end(), [](const HookTracker& a, const HookTracker& b) {
      return a.rows().back().ended < b.rows().back().ended;
    });
    return *middle;
  }

 private:
  void keep() override { kept_.push_back(tracker_); }
  void average() override {
    communication_ = tracker_.communication();
    overlapped_ = tracker_.overlapped();
    double end = tracker_.backward_end();
    for (const HookTracker::Row& row : tracker_.rows()) end = std::max(end, row.ended);
    exposed_ = end - tracker_.backward_end();
  }

  HookTracker tracker_;
  std::vector<HookTracker> kept_;
  DdpHooks hooks_;  // declared after the tracker, because it uses it
};

class Buckets final : public Contender {
 public:
  Buckets(const std::string& name, std::size_t bytes, const GradientOptions& options, Communicator& comm)
      : Contender(name, options, comm), ddp_(model_.ptr(), comm, with(bytes)) {
    optimize(ddp_.parameters());
  }

 private:
  static DdpOptions with(std::size_t bytes) {
    DdpOptions options;
    options.bucket_bytes = bytes;
    options.first_bucket_bytes = std::min(options.first_bucket_bytes, bytes);
    return options;
  }
  torch::Tensor forward(const torch::Tensor& x) override { return ddp_.forward(x); }
  void average() override {
    const auto& statistics = ddp_.statistics();
    communication_ = statistics.communication;
    exposed_ = statistics.exposed_communication;
    overlapped_ = 0;
    for (const auto& bucket : statistics.buckets)
      overlapped_ += std::max(0.0, std::min(bucket.ended, statistics.backward) - bucket.began);
  }
  void describe(json& row) const override {
    std::size_t bytes = 0;
    for (const auto& bucket : ddp_.statistics().buckets) bytes += bucket.bytes;
    const std::size_t calls = ddp_.statistics().buckets.size();
    row["calls"] = calls;
    row["bytes_per_call"] = static_cast<double>(bytes) / static_cast<double>(std::max<std::size_t>(calls, 1));
  }

  DistributedDataParallel<torch::nn::SequentialImpl> ddp_;
};

std::vector<std::unique_ptr<Contender>> contenders(const std::string& what, const GradientOptions& options,
                                                   Communicator& comm) {
  std::vector<std::unique_ptr<Contender>> all;
  if (what == "hooks") {
    all.push_back(std::make_unique<AfterBackward>(options, comm));
    all.push_back(std::make_unique<WithHooks>(options, comm));
    return all;
  }
  all.push_back(std::make_unique<Buckets>("one per parameter", 1, options, comm));
  for (const double size : options.buckets)
    all.push_back(std::make_unique<Buckets>(fmt::format("{:g} MiB", size),
                                            static_cast<std::size_t>(std::max(1.0, size * (1 << 20))), options, comm));
  return all;
}

void compare(const std::string& what, const GradientOptions& options, Communicator& comm) {
  const auto all = contenders(what, options, comm);
  for (int step = 0; step < kWarmUp + options.steps; ++step) {
    if (step == kWarmUp)
      for (const auto& one : all) one->forget();
    for (const auto& one : all) one->step();
  }
  if (comm.rank() != 0) return;

  const torch::nn::Sequential model = model::make_model(options.model);
  const auto size = model::size_of(*model);
  json document = {{"comparison", what},
                   {"parameters", size.parameters},
                   {"gradient_bytes", size.gradient_bytes},
                   {"tensors", model->parameters().size()},
                   {"ranks", comm.size()},
                   {"transport", comm.transport()},
                   {"batch", options.batch},
                   {"steps", options.steps},
                   {"device_ms", 1e3 * options.device_seconds},
                   {"rows", json::array()}};
  document.update(model_fields(options.model));
  for (const auto& one : all) document["rows"].push_back(one->row());
  const double first = document["rows"][0]["step_ms"];
  for (json& row : document["rows"]) row["speedup"] = first / row["step_ms"].get<double>();
  document["speedup"] = document["rows"].back()["speedup"];
  if (auto* hooks = dynamic_cast<WithHooks*>(all.back().get())) {
    const HookTracker& typical = hooks->typical();
    document["timeline"] = typical.table();
    document["backward_end_us"] = typical.backward_end() * 1e6;
    for (const HookTracker::Row& row : typical.rows())
      document["gradients"].push_back({{"parameter", row.parameter},
                                       {"bytes", row.bytes},
                                       {"ready_us", row.ready * 1e6},
                                       {"began_us", row.began * 1e6},
                                       {"ended_us", row.ended * 1e6}});
  }
  std::ofstream file(options.result, std::ios::binary);
  file << document.dump();
  file.close();
  if (!file) throw Error(fmt::format("cannot write the result to {}", options.result));
}

}  // namespace

int compare_gradients_rank(const std::string& what, std::span<const std::string> arguments) {
  const GradientOptions options = parse_gradient_options(what, arguments);
  transport::Options over = transport::Options::from_environment();
  if (options.transport != TransportKind::automatic) over.kind = options.transport;
  torch::set_num_threads(1);
  return rank_main([&](Communicator& comm) { compare(what, options, comm); }, over, comm::Options::from_environment());
}

}  // namespace lockstep::cli::comparison
