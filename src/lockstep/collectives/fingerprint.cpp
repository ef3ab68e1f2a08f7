#include "lockstep/collectives/fingerprint.h"
#include "lockstep/transport.h"

#include <fmt/format.h>

namespace lockstep::collectives {
namespace {

constexpr int kCountBits = 48;              // the history has the other bits of the word
constexpr int kSequenceBits = 40;           // the step has the other bits of the word
constexpr std::uint16_t kFirstContext = 1;  // its number is not shown, because most programs have only this one
constexpr std::uint64_t kFarewell = ~std::uint64_t{0};  // stands where a collective has its op, dtype and so on

constexpr std::uint64_t lower(std::uint64_t word, int bits) { return word & ((std::uint64_t{1} << bits) - 1); }

}  // namespace

Fingerprint::Fingerprint(const Call& call, std::uint64_t sequence, std::uint16_t context, std::uint16_t history) {
  const std::uint64_t what = static_cast<std::uint64_t>(call.op) | static_cast<std::uint64_t>(call.algorithm) << 8 |
                             static_cast<std::uint64_t>(call.dtype) << 16 |
                             static_cast<std::uint64_t>(call.reduce) << 24 |
                             static_cast<std::uint64_t>(call.purpose) << 28 |
                             static_cast<std::uint64_t>(static_cast<std::uint16_t>(call.root)) << 32 |
                             static_cast<std::uint64_t>(context) << 48;
  label_ = {{lower(sequence, kSequenceBits) | static_cast<std::uint64_t>(call.step) << kSequenceBits,
             call.count | static_cast<std::uint64_t>(history) << kCountBits, what}};
}

Fingerprint Fingerprint::farewell(std::uint64_t last_sequence) {
  return Fingerprint(transport::Label{{last_sequence, 0, kFarewell}});
}
bool Fingerprint::is_farewell() const { return label_.words[2] == kFarewell; }

std::uint16_t Fingerprint::hash() const {
  std::uint64_t mixed = 0;
  for (const std::uint64_t word : label_.words) mixed = (mixed ^ word) * 0x9e37'79b9'7f4a'7c15;
  return static_cast<std::uint16_t>(mixed >> 48);
}

std::uint64_t Fingerprint::sequence() const { return lower(label_.words[0], kSequenceBits); }

std::uint32_t Fingerprint::step() const { return static_cast<std::uint32_t>(label_.words[0] >> kSequenceBits); }

std::string Fingerprint::text() const {
  if (empty()) return "the set-up of the communicator";
  const auto [unused, count, what] = label_.words;
  const auto byte = [w = what](int shift) { return static_cast<std::uint8_t>(w >> shift); };
  const std::uint8_t reduce = byte(24) & 0xf;
  const std::uint8_t purpose = byte(24) >> 4;
  if (byte(0) > static_cast<std::uint8_t>(Op::barrier) || byte(8) > static_cast<std::uint8_t>(Algorithm::direct) ||
      byte(16) > static_cast<std::uint8_t>(DType::uint8) || reduce > static_cast<std::uint8_t>(ReduceOp::product) ||
      purpose > static_cast<std::uint8_t>(Call::Purpose::allocate_common))
    return "a message that is no collective's";
  const auto context = static_cast<std::uint16_t>(what >> 48);
  const std::string where = context > kFirstContext ? fmt::format(" in communicator {}", context) : "";
  if (purpose != 0)
    return fmt::format("{} {}{}",
                       purpose == static_cast<std::uint8_t>(Call::Purpose::allocate) ? "allocate" : "allocate_common",
                       sequence(), where);
  const auto op = static_cast<Op>(byte(0));
  std::string words = fmt::format("{} {} (", name_of(op), sequence());
  if (op != Op::barrier)
    words += fmt::format("{}, {} elements, ", name_of(static_cast<DType>(byte(16))), lower(count, kCountBits));
  if (op == Op::all_reduce || op == Op::reduce || op == Op::reduce_scatter)
    words += fmt::format("{}, ", name_of(static_cast<ReduceOp>(reduce)));
  if (op == Op::reduce || op == Op::broadcast || op == Op::scatter || op == Op::gather)
    words += fmt::format("root {}, ", static_cast<std::uint16_t>(what >> 32));
  words += fmt::format("algorithm {})", name_of(static_cast<Algorithm>(byte(8))));
  if (step() != 0) words += fmt::format(" of step {}", step());
  return words + where;
}

}  // namespace lockstep::collectives
