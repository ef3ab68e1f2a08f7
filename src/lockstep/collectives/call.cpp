#include "lockstep/collectives/call.h"

#include <new>

namespace lockstep::collectives {
namespace {

constexpr std::align_val_t kAlignment{64};

}  // namespace

void Scratch::Free::operator()(std::byte* memory) const { ::operator delete(memory, kAlignment); }

std::byte* Scratch::get(std::size_t bytes) {
  if (bytes > size_) {
    memory_.reset();
    memory_.reset(static_cast<std::byte*>(::operator new(bytes, kAlignment)));
    size_ = bytes;
  }
  return memory_.get();
}

}  // namespace lockstep::collectives
