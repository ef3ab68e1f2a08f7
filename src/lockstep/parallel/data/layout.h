// Which gradient goes into which bucket, and to which place in it. This is plain data, so that it can be printed,
// tested and compared.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace lockstep::parallel {

// A gradient to be placed.
struct Item {
  std::string name;
  std::size_t count = 0;
  c10::ScalarType dtype = c10::ScalarType::Float;
};

// The place of one gradient. Offsets are in bytes, from the start of the one memory that holds all buckets. Every
// gradient and every bucket begins on a cache line.
struct Slot {
  std::size_t item = 0;
  std::size_t offset = 0;
  std::size_t count = 0;
};

struct BucketLayout {
  c10::ScalarType dtype = c10::ScalarType::Float;
  std::size_t offset = 0;
  std::size_t count = 0;  // elements, including the gaps between the gradients
  std::vector<Slot> slots;

  std::size_t bytes() const { return count * c10::elementSize(dtype); }
};

struct Layout {
  std::vector<BucketLayout> buckets;  // in the order in which they become full
  std::size_t bytes = 0;

  std::string table(std::span<const Item> items) const;
};

struct LayoutOptions {
  std::size_t first_bucket_bytes = 0;
  std::size_t bucket_bytes = 0;
  int chunks = 1;  // each bucket can be cut into this many equal chunks that begin on a cache line
};

// The order in which gradients are expected before the first backward has shown it: backward reaches the last layer
// first.
std::vector<std::size_t> reverse_order(std::size_t count);

// Places gradients that become ready in `order` (indices of items, each once). A bucket takes gradients in this order,
// and is closed when it has reached its size. All gradients of a bucket have the same type. If options.chunks is 1, the
// total size does not depend on the order.
Layout make_layout(std::span<const Item> items, std::span<const std::size_t> order, const LayoutOptions& options);

}  // namespace lockstep::parallel
