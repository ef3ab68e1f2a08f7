#include "lockstep/train/save_parts.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "lockstep/comm/tensor.h"

namespace lockstep::train {
namespace {

using nlohmann::json;

// The order in which a rank hands its tensors over is that of the file.
NamedTensors in_order(const torch::nn::Module& module) {
  NamedTensors tensors = tensors_of(module);
  std::stable_sort(tensors.begin(), tensors.end(),
                   [](const auto& a, const auto& b) { return a.second.element_size() > b.second.element_size(); });
  return tensors;
}

std::vector<TensorSpec> specs_of(const NamedTensors& tensors) {
  std::vector<TensorSpec> specs;
  for (const auto& [name, tensor] : tensors) specs.push_back({name, tensor.scalar_type(), tensor.sizes().vec()});
  return specs;
}

void send_specs(const std::vector<TensorSpec>& specs, Communicator& comm) {
  json list = json::array();
  for (const auto& [name, type, shape] : specs) list.push_back({name, static_cast<int>(type), shape});
  const std::string text = list.dump();
  const auto length = static_cast<std::int64_t>(text.size());
  comm.send(0, ConstBuffer(&length, 1, DType::int64));
  comm.send(0, ConstBuffer(text.data(), text.size(), DType::uint8));
}

std::vector<TensorSpec> receive_specs(Rank from, Communicator& comm) {
  std::int64_t length = 0;
  comm.recv(from, Buffer(&length, 1, DType::int64));
  std::string text(static_cast<std::size_t>(length), ' ');
  comm.recv(from, Buffer(text.data(), text.size(), DType::uint8));
  std::vector<TensorSpec> specs;
  for (const json& one : json::parse(text))
    specs.push_back({one[0], static_cast<at::ScalarType>(one[1].get<int>()), one[2].get<std::vector<std::int64_t>>()});
  return specs;
}

}  // namespace

void save_parts(const std::string& path, const torch::nn::Module& mine, Communicator& comm, int parts,
                const Metadata& metadata) {
  if (comm.rank() >= parts) return;
  const NamedTensors own = in_order(mine);
  if (comm.rank() != 0) {
    send_specs(specs_of(own), comm);
    for (const auto& [name, tensor] : own) send(comm, 0, tensor.detach().contiguous());
    return;
  }
  std::vector<TensorSpec> specs = specs_of(own);
  std::vector<Rank> owners(own.size(), 0);
  for (Rank rank = 1; rank < parts; ++rank)
    for (TensorSpec& spec : receive_specs(rank, comm)) {
      specs.push_back(std::move(spec));
      owners.push_back(rank);
    }
  save_tensors(
      path, specs,
      [&](std::size_t i) {
        if (owners[i] == 0) return own[i].second;
        const torch::Tensor place = torch::empty(specs[i].shape, at::TensorOptions(specs[i].type));
        recv(comm, owners[i], place);
        return place;
      },
      metadata);
}

}  // namespace lockstep::train
