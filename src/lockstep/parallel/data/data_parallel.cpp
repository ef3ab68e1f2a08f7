#include "lockstep/data_parallel.h"

#include "lockstep/parallel/data/reducer.h"

namespace lockstep {

DataParallelBase::DataParallelBase(std::shared_ptr<torch::nn::Module> module, Communicator& comm, DdpOptions options)
    : module_(std::move(module)), reducer_(std::make_unique<parallel::Reducer>(*module_, comm, std::move(options))) {}
DataParallelBase::~DataParallelBase() = default;
DataParallelBase::DataParallelBase(DataParallelBase&&) noexcept = default;
DataParallelBase& DataParallelBase::operator=(DataParallelBase&&) noexcept = default;

std::vector<torch::Tensor> DataParallelBase::parameters() const { return reducer_->optimized(); }
void DataParallelBase::finish() { reducer_->finish(); }
NoSync DataParallelBase::no_sync() { return reducer_->no_sync(); }
void DataParallelBase::join(const std::function<void()>& body, const JoinOptions& options) {
  reducer_->join(body, options);
}
void DataParallelBase::sync() { reducer_->sync(); }
void DataParallelBase::average_gradients() { reducer_->average_gradients(); }

double DataParallelBase::clip_grad_norm(double max_norm, double norm_type) {
  return reducer_->clip_grad_norm(max_norm, norm_type);
}
const DdpStatistics& DataParallelBase::statistics() const { return reducer_->statistics(); }
std::string DataParallelBase::layout() const { return reducer_->layout(); }
Communicator& DataParallelBase::communicator() { return reducer_->communicator(); }

DataParallelBase::Forward::Forward(DataParallelBase& model) : reducer_(*model.reducer_) {
  reducer_.begin_forward();
  began_ = Clock::now();
}
DataParallelBase::Forward::~Forward() { reducer_.end_forward(began_); }
void DataParallelBase::Forward::succeeded() const { reducer_.forward_succeeded(); }
void DataParallelBase::Forward::watch(const torch::Tensor& output) const { reducer_.watch(output); }

}  // namespace lockstep
