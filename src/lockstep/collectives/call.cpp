#include "lockstep/collectives/call.h"

#include <fmt/format.h>

#include <new>

namespace lockstep::collectives {
namespace {

constexpr std::align_val_t kAlignment{64};
constexpr int kCountBits = 48;              // the history has the other bits of the word
constexpr int kSequenceBits = 40;           // the step has the other bits of the word
constexpr std::uint16_t kFirstContext = 1;  // its number is not shown, because most programs have only this one

constexpr std::uint64_t lower(std::uint64_t word, int bits) { return word & ((std::uint64_t{1} << bits) - 1); }

}  // namespace

transport::Label fingerprint(const Call& call, std::uint64_t sequence, std::uint16_t context, std::uint16_t history) {
  const std::uint64_t what = static_cast<std::uint64_t>(call.op) | static_cast<std::uint64_t>(call.algorithm) << 8 |
                             static_cast<std::uint64_t>(call.dtype) << 16 |
                             static_cast<std::uint64_t>(call.reduce) << 24 |
                             static_cast<std::uint64_t>(call.purpose) << 28 |
                             static_cast<std::uint64_t>(static_cast<std::uint16_t>(call.root)) << 32 |
                             static_cast<std::uint64_t>(context) << 48;
  return {{lower(sequence, kSequenceBits) | static_cast<std::uint64_t>(call.step) << kSequenceBits,
           call.count | static_cast<std::uint64_t>(history) << kCountBits, what}};
}

std::uint16_t history_after(const transport::Label& fingerprint) {
  std::uint64_t hash = 0;
  for (const std::uint64_t word : fingerprint.words) hash = (hash ^ word) * 0x9e37'79b9'7f4a'7c15;
  return static_cast<std::uint16_t>(hash >> 48);
}

std::uint64_t sequence_of(const transport::Label& fingerprint) { return lower(fingerprint.words[0], kSequenceBits); }

std::uint32_t step_of(const transport::Label& fingerprint) {
  return static_cast<std::uint32_t>(fingerprint.words[0] >> kSequenceBits);
}

std::string describe(const transport::Label& fingerprint) {
  if (fingerprint.empty()) return "the set-up of the communicator";
  const auto [first, count, what] = fingerprint.words;
  const auto byte = [w = what](int shift) { return static_cast<std::uint8_t>(w >> shift); };
  const std::uint8_t reduce = byte(24) & 0xf;
  const std::uint8_t purpose = byte(24) >> 4;
  if (byte(0) > static_cast<std::uint8_t>(Op::barrier) || byte(8) > static_cast<std::uint8_t>(Algorithm::direct) ||
      byte(16) > static_cast<std::uint8_t>(DType::uint8) || reduce > static_cast<std::uint8_t>(ReduceOp::product) ||
      purpose > static_cast<std::uint8_t>(Call::Purpose::allocate_common))
    return "a message that is no collective's";
  const std::uint64_t sequence = lower(first, kSequenceBits);
  const auto context = static_cast<std::uint16_t>(what >> 48);
  const std::string where = context > kFirstContext ? fmt::format(" in communicator {}", context) : "";
  if (purpose != 0)
    return fmt::format("{} {}{}",
                       purpose == static_cast<std::uint8_t>(Call::Purpose::allocate) ? "allocate" : "allocate_common",
                       sequence, where);
  const auto op = static_cast<Op>(byte(0));
  std::string text = fmt::format("{} {} (", name_of(op), sequence);
  if (op != Op::barrier)
    text += fmt::format("{}, {} elements, ", name_of(static_cast<DType>(byte(16))), lower(count, kCountBits));
  if (op == Op::all_reduce || op == Op::reduce || op == Op::reduce_scatter)
    text += fmt::format("{}, ", name_of(static_cast<ReduceOp>(reduce)));
  if (op == Op::reduce || op == Op::broadcast || op == Op::scatter || op == Op::gather)
    text += fmt::format("root {}, ", static_cast<std::uint16_t>(what >> 32));
  text += fmt::format("algorithm {})", name_of(static_cast<Algorithm>(byte(8))));
  if (const std::uint32_t step = step_of(fingerprint); step != 0) text += fmt::format(" of step {}", step);
  return text + where;
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
