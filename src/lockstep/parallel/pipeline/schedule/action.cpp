#include "lockstep/schedule.h"

#include <fmt/format.h>
#include <array>
#include <charconv>

#include "lockstep/error.h"

namespace lockstep::pipeline {
namespace {

constexpr std::array<std::string_view, 8> kNames = {"F", "B", "I", "W", "SEND_F", "RECV_F", "SEND_B", "RECV_B"};
constexpr std::size_t kMaxDigits = 6;
constexpr std::string_view kDigits = "0123456789";

[[noreturn]] void refuse(std::string_view text) {
  throw UsageError(fmt::format("'{}' is not an action", text),
                   "stage, kind (F, B, I, W, SEND_F, RECV_F, SEND_B or RECV_B) and microbatch, as in 1B3");
}

int number(std::string_view digits, std::string_view text) {
  int value = 0;
  if (digits.empty() || digits.size() > kMaxDigits) refuse(text);
  if (digits.size() > 1 && digits[0] == '0') refuse(text);  // so that to_string() gives the same text back
  std::from_chars(digits.data(), digits.data() + digits.size(), value);
  return value;
}

}  // namespace

bool is_send(Kind kind) { return kind == Kind::SEND_F || kind == Kind::SEND_B; }
bool is_recv(Kind kind) { return kind == Kind::RECV_F || kind == Kind::RECV_B; }

Action other_end(const Action& message) {
  switch (message.kind) {
    case Kind::SEND_F:
      return {message.stage + 1, Kind::RECV_F, message.microbatch};
    case Kind::RECV_F:
      return {message.stage - 1, Kind::SEND_F, message.microbatch};
    case Kind::SEND_B:
      return {message.stage - 1, Kind::RECV_B, message.microbatch};
    case Kind::RECV_B:
      return {message.stage + 1, Kind::SEND_B, message.microbatch};
    default:
      throw Error(fmt::format("{} is no message and has no other end", to_string(message)));
  }
}

std::string_view name_of(Kind kind) { return kNames[static_cast<std::size_t>(kind)]; }

std::string to_string(const Action& action) {
  return fmt::format("{}{}{}", action.stage, name_of(action.kind), action.microbatch);
}

Action parse_action(std::string_view text) {
  const auto kind_at = text.find_first_not_of(kDigits);
  const auto last_letter = text.find_last_not_of(kDigits);
  if (kind_at == std::string_view::npos) refuse(text);
  const std::string_view name = text.substr(kind_at, last_letter + 1 - kind_at);
  for (std::size_t kind = 0; kind < kNames.size(); ++kind)
    if (kNames[kind] == name)
      return {number(text.substr(0, kind_at), text), static_cast<Kind>(kind),
              number(text.substr(last_letter + 1), text)};
  refuse(text);
}

}  // namespace lockstep::pipeline
