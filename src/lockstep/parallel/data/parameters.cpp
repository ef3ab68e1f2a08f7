#include "lockstep/parallel/data/parameters.h"

#include <fmt/format.h>
#include <algorithm>
#include <functional>
#include <sstream>
#include <unordered_set>

#include "lockstep/error.h"
#include "lockstep/tensor.h"

namespace lockstep::parallel {
namespace {

// One line per tensor, with everything that must be the same on all ranks.
std::string describe(const ModelTensors& tensors) {
  std::ostringstream text;
  const auto add = [&](const char* kind, const std::vector<Named>& all) {
    for (const auto& [name, tensor] : all) {
      text << kind << ' ' << name << ": " << tensor.dtype().name() << ' ' << tensor.sizes();
      if (!tensor.is_contiguous()) text << " strides " << tensor.strides();
      text << '\n';
    }
  };
  add("parameter", tensors.trained);
  add("frozen parameter", tensors.frozen);
  add("buffer", tensors.buffers);
  return text.str();
}

std::string broadcast_text(std::string text, Communicator& comm, Rank root) {
  std::int64_t length = static_cast<std::int64_t>(text.size());
  comm.broadcast(Buffer(&length, 1, DType::int64), root);
  text.resize(static_cast<std::size_t>(length));
  comm.broadcast(Buffer(text.data(), text.size(), DType::uint8), root);
  return text;
}

// The first line in which the two texts differ, taken from each of them.
std::pair<std::string, std::string> first_difference(const std::string& a, const std::string& b) {
  std::istringstream lines_a(a);
  std::istringstream lines_b(b);
  std::string line_a;
  std::string line_b;
  for (;;) {
    const bool more_a = static_cast<bool>(std::getline(lines_a, line_a));
    const bool more_b = static_cast<bool>(std::getline(lines_b, line_b));
    if (!more_a) line_a = "nothing more";
    if (!more_b) line_b = "nothing more";
    if (line_a != line_b || (!more_a && !more_b)) return {line_a, line_b};
  }
}

// Gives access to a module's own list of parameters. libtorch returns only copies of the list, with the names, but
// derived classes can see the list itself.
struct Lists : torch::nn::Module {
  static const auto& parameters_of(const torch::nn::Module& module) { return module.*&Lists::parameters_; }
};

}  // namespace

void Registered::add(const torch::nn::Module& module) {
  One one{&module, {}, module.children()};
  for (const auto& item : Lists::parameters_of(module)) one.parameters.push_back(item.value().unsafeGetTensorImpl());
  modules_.push_back(std::move(one));
  for (const auto& child : module.children()) add(*child);
}

bool Registered::changed() const {
  return std::any_of(modules_.begin(), modules_.end(), [](const One& one) {
    const auto& now = Lists::parameters_of(*one.module);
    return !std::equal(
               now.begin(), now.end(), one.parameters.begin(), one.parameters.end(),
               [](const auto& item, const at::TensorImpl* was) { return item.value().unsafeGetTensorImpl() == was; }) ||
           one.module->children() != one.children;
  });
}

ModelTensors tensors_of(const torch::nn::Module& module) {
  ModelTensors found;
  std::unordered_set<const void*> seen;
  for (const auto& item : module.named_parameters()) {
    if (!item.value().defined() || !seen.insert(item.value().unsafeGetTensorImpl()).second) continue;
    (item.value().requires_grad() ? found.trained : found.frozen).push_back({item.key(), item.value()});
  }
  for (const auto& item : module.named_buffers())
    if (item.value().defined() && seen.insert(item.value().unsafeGetTensorImpl()).second)
      found.buffers.push_back({item.key(), item.value()});
  return found;
}

void compare_models(const ModelTensors& tensors, Communicator& comm) {
  const std::string mine = describe(tensors);
  const auto hash = static_cast<std::int64_t>(std::hash<std::string>()(mine));
  std::vector<std::int64_t> hashes(static_cast<std::size_t>(comm.size()));
  comm.all_gather(ConstBuffer(&hash, 1, DType::int64), Buffer(hashes.data(), hashes.size(), DType::int64));
  if (std::all_of(hashes.begin(), hashes.end(), [&](std::int64_t other) { return other == hashes[0]; })) return;

  std::vector<std::string> all;
  for (Rank rank = 0; rank < comm.size(); ++rank) all.push_back(broadcast_text(mine, comm, rank));
  for (Rank rank = 1; rank < comm.size(); ++rank) {
    if (hashes[index_of(rank)] == hashes[0]) continue;
    const auto [first, other] = first_difference(all[0], all[index_of(rank)]);
    throw Mismatch(fmt::format("ranks hold different models: rank {} has {}; rank {} has {}", comm.world_rank(0), first,
                               comm.world_rank(rank), other),
                   "build the same model, with the same layers frozen, on every rank");
  }
}

// Broadcasts bytes, so that any element type works, also the bool of masks.
void broadcast_all(const std::vector<Named>& tensors, Communicator& comm, Rank root) {
  const torch::NoGradGuard no_grad;
  for (const auto& [name, tensor] : tensors) {
    if (!tensor.is_cpu() || tensor.layout() != at::kStrided)
      throw UsageError(fmt::format("rank {}: {} is not a dense tensor on the CPU", comm.world_rank(), name),
                       "module.to(torch::kCPU)");
    const bool in_one_piece = tensor.is_contiguous() && !tensor.is_neg();
    const torch::Tensor whole = in_one_piece ? tensor : tensor.detach().contiguous();
    comm.broadcast(Buffer(whole.data_ptr(), whole.nbytes(), DType::uint8), root);
    if (!whole.is_same(tensor)) tensor.detach().copy_(whole);
  }
}

}  // namespace lockstep::parallel
