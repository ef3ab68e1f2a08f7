#include "lockstep/parallel/data/layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>

namespace lockstep::parallel {
namespace {

constexpr std::size_t kLine = 64;

std::size_t round_up(std::size_t value, std::size_t to) { return (value + to - 1) / to * to; }

// A bucket that still takes gradients.
struct Open {
  BucketLayout bucket;
  std::size_t bytes = 0;
  std::size_t last = 0;  // position in the order of the gradient that came last
};

}  // namespace

std::vector<std::size_t> reverse_order(std::size_t count) {
  std::vector<std::size_t> order(count);
  std::iota(order.rbegin(), order.rend(), std::size_t{0});
  return order;
}

Layout make_layout(std::span<const Item> items, std::span<const std::size_t> order, const LayoutOptions& options) {
  std::vector<Open> closed;
  std::map<c10::ScalarType, Open> open;
  std::map<c10::ScalarType, bool> has_first;
  for (std::size_t position = 0; position < order.size(); ++position) {
    const Item& item = items[order[position]];
    Open& into = open[item.dtype];
    into.bucket.dtype = item.dtype;
    into.bucket.slots.push_back({order[position], into.bytes, item.count});
    into.bytes += round_up(item.count * c10::elementSize(item.dtype), kLine);
    into.last = position;
    if (into.bytes < (has_first[item.dtype] ? options.bucket_bytes : options.first_bucket_bytes)) continue;
    has_first[item.dtype] = true;
    closed.push_back(std::move(into));
    open.erase(item.dtype);
  }
  for (auto& [dtype, left] : open) closed.push_back(std::move(left));
  std::sort(closed.begin(), closed.end(), [](const Open& a, const Open& b) { return a.last < b.last; });

  Layout layout;
  for (Open& full : closed) {
    BucketLayout& bucket = full.bucket;
    bucket.offset = layout.bytes;
    for (Slot& slot : bucket.slots) slot.offset += bucket.offset;
    const std::size_t bytes = round_up(full.bytes, kLine * static_cast<std::size_t>(options.chunks));
    bucket.count = bytes / c10::elementSize(bucket.dtype);
    layout.bytes += bytes;
    layout.buckets.push_back(std::move(bucket));
  }
  return layout;
}

std::string Layout::table(std::span<const Item> items) const {
  std::string text =
      fmt::format("{:>6}  {:>12}  {:<9} {:>9}  {}\n", "bucket", "bytes", "type", "gradients", "from, to");
  for (std::size_t index = 0; index < buckets.size(); ++index) {
    const BucketLayout& bucket = buckets[index];
    text +=
        fmt::format("{:>6}  {:>12}  {:<9} {:>9}  {}, {}\n", index, bucket.bytes(), c10::toString(bucket.dtype),
                    bucket.slots.size(), items[bucket.slots.front().item].name, items[bucket.slots.back().item].name);
  }
  return text;
}

}  // namespace lockstep::parallel
