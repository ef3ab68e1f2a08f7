// Visits the tensors in the result of a module's forward. The result may be a tensor, or pairs, tuples, vectors and
// optionals of such results. A result of any other type is treated as one without tensors.
#pragma once

#include <torch/types.h>

#include <optional>
#include <tuple>
#include <utility>
#include <vector>

namespace lockstep::parallel {

template <typename Output, typename Visit>
void for_each_tensor(const Output& output, const Visit& visit);

namespace outputs {

template <typename Visit>
void look(const torch::Tensor& tensor, const Visit& visit) {
  visit(tensor);
}
template <typename Item, typename Visit>
void look(const std::vector<Item>& items, const Visit& visit) {
  for (const Item& item : items) for_each_tensor(item, visit);
}
template <typename... Items, typename Visit>
void look(const std::tuple<Items...>& items, const Visit& visit) {
  std::apply([&](const Items&... item) { (for_each_tensor(item, visit), ...); }, items);
}
template <typename First, typename Second, typename Visit>
void look(const std::pair<First, Second>& items, const Visit& visit) {
  for_each_tensor(items.first, visit);
  for_each_tensor(items.second, visit);
}
template <typename Item, typename Visit>
void look(const std::optional<Item>& item, const Visit& visit) {
  if (item) for_each_tensor(*item, visit);
}

}  // namespace outputs

template <typename Output, typename Visit>
void for_each_tensor(const Output& output, const Visit& visit) {
  if constexpr (requires { outputs::look(output, visit); }) outputs::look(output, visit);
}

}  // namespace lockstep::parallel
