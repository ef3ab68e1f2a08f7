#include "lockstep/parallel/pipeline/run/step_notes.h"

#include <fmt/format.h>

#include <utility>

#include "lockstep/error.h"
#include "lockstep/parallel/pipeline/run/with_position.h"
#include "lockstep/tensor.h"

namespace lockstep::pipeline {
namespace {

constexpr Tag kBatchTag = 0;
constexpr Tag kLossTag = 1;
constexpr const char* kHint = "the same batch on all ranks, or an undefined tensor on ranks that do not need it";

torch::Tensor to_tensor(const BatchNote& note) {
  return torch::tensor({note.rows, note.own_rows, note.shape}, torch::kInt64);
}
BatchNote batch_note(const torch::Tensor& tensor) {
  const auto* words = tensor.data_ptr<std::int64_t>();
  return {words[0], words[1], words[2]};
}
torch::Tensor to_tensor(const LossNote& note) {
  return torch::tensor({note.mean, note.own_rows, note.rows}, torch::kFloat64);
}
LossNote loss_note(const torch::Tensor& tensor) {
  const auto* words = tensor.data_ptr<double>();
  return {words[0], words[1], words[2]};
}

}  // namespace

StepNotes::StepNotes(Communicator& all, const Schedule& schedule)
    : all_(all),
      schedule_(schedule),
      number_(all.rank() / schedule.ranks),
      pipelines_(all.size() / schedule.ranks),
      first_(number_ * schedule.ranks + schedule.rank_of_stage.front()) {}

BatchNote StepNotes::begin(std::int64_t step, const BatchNote& mine) {
  step_ = step;
  mine_ = mine;
  rows_ = mine.rows;
  sends_.clear();
  receives_.clear();
  if (is_first()) {
    const torch::Tensor note = to_tensor(mine);
    for (Rank rank = number_ * schedule_.ranks; rank < (number_ + 1) * schedule_.ranks; ++rank)
      if (rank != first_) sends_.push_back(all_.send_async(rank, note, kBatchTag));
    return mine;
  }
  told_ = torch::empty({3}, torch::kInt64);
  receives_.push_back(all_.recv_async(first_, told_, kBatchTag));
  if (mine.shape != 0) return mine;
  with_position(
      all_, [&] { return fmt::format("waits for the size of the batch of step {}", step_); }, [&] { compare(); });
  const BatchNote told = batch_note(told_);
  rows_ = told.rows;
  return told;
}

void StepNotes::compare() {
  if (is_first()) return;
  receives_.front().wait();
  const BatchNote told = batch_note(told_);
  for (const auto& [mine, theirs] : {std::pair(mine_.rows, told.rows), std::pair(mine_.own_rows, told.own_rows)})
    if (mine >= 0 && mine != theirs)
      throw Mismatch(fmt::format("ranks disagree: rank {} was given a batch of {} rows in step {}, rank {} one of {}",
                                 all_.world_rank(), mine, step_, all_.world_rank(first_), theirs),
                     kHint);
  if (mine_.shape != 0 && mine_.shape != told.shape)
    throw Mismatch(
        fmt::format("ranks disagree: the inputs of step {} have another shape or type on rank {} than on rank {}",
                    step_, all_.world_rank(), all_.world_rank(first_)),
        kHint);
}

void StepNotes::give_up() {
  receives_.clear();
  sends_.clear();
}

void StepNotes::tell_loss(const LossNote& mine) {
  loss_ = mine;
  const torch::Tensor note = to_tensor(mine);
  for (Rank rank = 0; rank < all_.size(); ++rank)
    if (rank != all_.rank()) sends_.push_back(all_.send_async(rank, note, kLossTag));
}

std::vector<LossNote> StepNotes::collect_losses() {
  std::vector<LossNote> losses;
  for (int pipeline = 0; pipeline < pipelines_; ++pipeline) {
    const Rank from = last_of(pipeline);
    losses.push_back(loss_);
    if (from != all_.rank()) {
      const torch::Tensor note = torch::empty({3}, torch::kFloat64);
      all_.recv(from, note, kLossTag);
      losses.back() = loss_note(note);
    }
    if (losses.back().rows != static_cast<double>(rows_))
      throw Mismatch(fmt::format("ranks disagree: the batch of step {} has {} rows on rank {}, and {} on rank {}",
                                 step_, rows_, all_.world_rank(), losses.back().rows, all_.world_rank(from)),
                     "the same batch on all ranks");
  }
  for (Work& send : sends_) send.wait();
  return losses;
}

}  // namespace lockstep::pipeline
