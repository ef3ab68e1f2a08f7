#include "lockstep/collectives/call.h"

#include <fmt/format.h>

#include <new>

namespace lockstep::collectives {
namespace {

constexpr std::align_val_t kAlignment{64};
constexpr int kCountBits = 48;  // the history has the rest

}  // namespace

transport::Label fingerprint(const Call& call, std::uint64_t sequence, std::uint16_t context, std::uint16_t history) {
  const std::uint64_t what = static_cast<std::uint64_t>(call.op) | static_cast<std::uint64_t>(call.algorithm) << 8 |
                             static_cast<std::uint64_t>(call.dtype) << 16 |
                             static_cast<std::uint64_t>(call.reduce) << 24 |
                             static_cast<std::uint64_t>(static_cast<std::uint16_t>(call.root)) << 32 |
                             static_cast<std::uint64_t>(context) << 48;
  return {{sequence, call.count | static_cast<std::uint64_t>(history) << kCountBits, what}};
}

std::uint16_t history_after(const transport::Label& fingerprint) {
  std::uint64_t hash = 0;
  for (const std::uint64_t word : fingerprint.words) hash = (hash ^ word) * 0x9e37'79b9'7f4a'7c15;
  return static_cast<std::uint16_t>(hash >> 48);
}

std::uint64_t sequence_of(const transport::Label& fingerprint) { return fingerprint.words[0]; }

std::string describe(const transport::Label& fingerprint) {
  if (fingerprint.empty()) return "the set-up of the communicator";
  const auto [sequence, count, what] = fingerprint.words;
  const auto byte = [w = what](int shift) { return static_cast<std::uint8_t>(w >> shift); };
  if (byte(0) > static_cast<std::uint8_t>(Op::barrier) || byte(8) > static_cast<std::uint8_t>(Algorithm::direct) ||
      byte(16) > static_cast<std::uint8_t>(DType::uint8) || byte(24) > static_cast<std::uint8_t>(ReduceOp::product))
    return "a message that is no collective's";
  const auto op = static_cast<Op>(byte(0));
  std::string text = fmt::format("{} {} (", name_of(op), sequence);
  if (op != Op::barrier)
    text += fmt::format("{}, {} elements, ", name_of(static_cast<DType>(byte(16))),
                        static_cast<std::uint64_t>(count & ((std::uint64_t{1} << kCountBits) - 1)));
  if (op == Op::all_reduce || op == Op::reduce || op == Op::reduce_scatter)
    text += fmt::format("{}, ", name_of(static_cast<ReduceOp>(byte(24))));
  if (op == Op::reduce || op == Op::broadcast || op == Op::scatter || op == Op::gather)
    text += fmt::format("root {}, ", static_cast<std::uint16_t>(what >> 32));
  return text + fmt::format("algorithm {})", name_of(static_cast<Algorithm>(byte(8))));
}

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
