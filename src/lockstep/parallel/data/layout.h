// Which gradient goes into which bucket, and where: data, so that it can be printed, tested and compared.
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

// Offsets are bytes from the beginning of the one memory that holds all buckets. Every gradient and every bucket begins
// on a cache line.
struct Slot {
  std::size_t item = 0;
  std::size_t offset = 0;
  std::size_t count = 0;
};

struct BucketLayout {
  c10::ScalarType dtype = c10::ScalarType::Float;
  std::size_t offset = 0;
  std::size_t count = 0;  // elements, the gaps between the gradients included
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
  int chunks = 1;  // each bucket can be cut into so many equal chunks that begin on a cache line
};

// Gradients come in `order` (indices of items, each once). A bucket takes them as they come and is closed when it has
// reached its size; types don't mix. With one chunk a bucket, the total does not depend on the order.
Layout make_layout(std::span<const Item> items, std::span<const std::size_t> order, const LayoutOptions& options);

}  // namespace lockstep::parallel
