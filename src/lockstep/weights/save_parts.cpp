#include "lockstep/weights/save_parts.h"

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <unordered_map>
#include <utility>

#include "lockstep/tensor.h"

namespace lockstep::weights {
namespace {

using nlohmann::json;

// A tensor of the file.
struct Item {
  TensorSpec spec;
  bool is_buffer = false;
  Rank owner = 0;
  std::size_t number = 0;  // index in its owner's list
};

// The place of a tensor in the whole model: parameters come first, then buffers, each in the order of their modules.
class Places {
 public:
  explicit Places(const std::vector<std::string>& modules) {
    for (const std::string& module : modules) numbers_.emplace(module, static_cast<std::int64_t>(numbers_.size()));
  }
  std::pair<bool, std::int64_t> of(const Item& item) const {
    const std::string module = item.spec.name.substr(0, item.spec.name.find('.'));
    const auto found = numbers_.find(module);
    return {item.is_buffer, found == numbers_.end() ? std::strtoll(module.c_str(), nullptr, 10) : found->second};
  }

 private:
  std::unordered_map<std::string, std::int64_t> numbers_;
};

// A rank sends its tensors in the order in which they come in the file.
NamedTensors in_order(const torch::nn::Module& module) {
  NamedTensors tensors = tensors_of(module);
  std::stable_sort(tensors.begin(), tensors.end(),
                   [](const auto& a, const auto& b) { return a.second.element_size() > b.second.element_size(); });
  return tensors;
}

std::vector<Item> items_of(const NamedTensors& tensors, const torch::nn::Module& module) {
  const auto buffers = module.named_buffers();
  std::vector<Item> items;
  for (const auto& [name, tensor] : tensors)
    items.push_back({{name, tensor.scalar_type(), tensor.sizes().vec()}, buffers.contains(name), 0, items.size()});
  return items;
}

void send_items(const std::vector<Item>& items, Communicator& comm) {
  json list = json::array();
  for (const auto& [spec, is_buffer, owner, number] : items)
    list.push_back({spec.name, static_cast<int>(spec.type), spec.shape, is_buffer});
  const std::string text = list.dump();
  const auto length = static_cast<std::int64_t>(text.size());
  comm.send(0, ConstBuffer(&length, 1, DType::int64));
  comm.send(0, ConstBuffer(text.data(), text.size(), DType::uint8));
}

std::vector<Item> receive_items(Rank from, Communicator& comm) {
  std::int64_t length = 0;
  comm.recv(from, Buffer(&length, 1, DType::int64));
  std::string text(static_cast<std::size_t>(length), ' ');
  comm.recv(from, Buffer(text.data(), text.size(), DType::uint8));
  std::vector<Item> items;
  for (const json& one : json::parse(text))
    items.push_back({{one[0], static_cast<at::ScalarType>(one[1].get<int>()), one[2].get<std::vector<std::int64_t>>()},
                     one[3].get<bool>(),
                     from,
                     items.size()});
  return items;
}

}  // namespace

void save_parts(const std::string& path, const torch::nn::Module& mine, Communicator& comm, int parts,
                const Metadata& metadata, const std::vector<std::string>& modules) {
  if (comm.rank() >= parts) return;
  const NamedTensors own = in_order(mine);
  std::vector<Item> items = items_of(own, mine);
  if (comm.rank() != 0) {
    send_items(items, comm);
    for (const auto& [name, tensor] : own) send(comm, 0, tensor.detach().contiguous());
    return;
  }
  for (Rank rank = 1; rank < parts; ++rank)
    for (Item& item : receive_items(rank, comm)) items.push_back(std::move(item));
  // Within a rank, this changes the order only between tensors of different types, and save_tensors() sorts by type
  // again.
  std::stable_sort(items.begin(), items.end(),
                   [places = Places(modules)](const Item& a, const Item& b) { return places.of(a) < places.of(b); });
  std::vector<TensorSpec> specs;
  for (const Item& item : items) specs.push_back(item.spec);
  save_tensors(
      path, specs,
      [&](std::size_t i) {
        if (items[i].owner == 0) return own[items[i].number].second;
        const torch::Tensor place = torch::empty(specs[i].shape, at::TensorOptions(specs[i].type));
        recv(comm, items[i].owner, place);
        return place;
      },
      metadata);
}

}  // namespace lockstep::weights
