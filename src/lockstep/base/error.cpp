#include "lockstep/error.h"

#include <fmt/format.h>
#include <system_error>

#include "lockstep/base/log.h"

namespace lockstep {

namespace {

std::string operation_of(const ErrorFacts& facts) {
  std::string text = facts.operation;
  if (facts.tag) text += fmt::format(", tag {}", *facts.tag);
  if (facts.message_number > 0) text += fmt::format(" (message {})", facts.message_number);
  return text;
}

// What happened, and in which operation.
std::string event_of(Error::Kind kind, const ErrorFacts& facts) {
  if (facts.operation.empty()) return facts.message;
  const std::string operation = operation_of(facts);
  switch (kind) {
    case Error::Kind::peer_died:
    case Error::Kind::peer_unreachable:
      if (facts.message_number > 0)
        return fmt::format("stopped because {}; it was waiting in {}", facts.message, operation);
      return fmt::format("stopped in {}: {}", operation, facts.message);
    case Error::Kind::timed_out:
      return fmt::format("{} {}", operation, facts.message);
    default:
      return fmt::format("{}: {}", operation, facts.message);
  }
}

std::string text_of(Error::Kind kind, const ErrorFacts& facts) {
  std::string text;
  for (const std::string& where : facts.context) text += where + ": ";
  if (facts.rank != kNoRank) text += fmt::format("rank {}: ", facts.rank);
  text += event_of(kind, facts);
  for (const std::string& note : facts.notes) text += "; " + note;
  if (!facts.hint.empty()) text += "; try: " + facts.hint;
  return text;
}

ErrorFacts facts_of(const std::string& message, const std::string& hint, Rank peer = kNoRank) {
  ErrorFacts facts;
  facts.message = message;
  facts.peer = peer;
  facts.hint = hint;
  return facts;
}

}  // namespace

Error::Error(Kind kind, ErrorFacts facts, int exit_code)
    : std::runtime_error(text_of(kind, facts)),
      facts_(std::make_shared<const ErrorFacts>(std::move(facts))),
      kind_(kind),
      exit_code_(exit_code) {}
Error::Error(const std::string& message, const std::string& hint, int exit_code)
    : Error(Kind::failed, facts_of(message, hint), exit_code) {}
Error::Error(ErrorFacts facts) : Error(Kind::failed, std::move(facts), kExitFailed) {}

std::exception_ptr Error::with_facts(ErrorFacts facts) const { return copy_with(*this, std::move(facts)); }

void Error::set_facts(ErrorFacts facts) {
  static_cast<std::runtime_error&>(*this) = std::runtime_error(text_of(kind_, facts));
  facts_ = std::make_shared<const ErrorFacts>(std::move(facts));
}

std::exception_ptr with_context(const Error& error, const std::string& where) {
  ErrorFacts facts = error.facts();
  facts.context.insert(facts.context.begin(), where);
  return error.with_facts(std::move(facts));
}

UsageError::UsageError(const std::string& message, const std::string& hint) : UsageError(facts_of(message, hint)) {}
TimedOut::TimedOut(const std::string& message, const std::string& hint) : TimedOut(facts_of(message, hint)) {}
Mismatch::Mismatch(const std::string& message, const std::string& hint) : Mismatch(facts_of(message, hint)) {}
PeerDied::PeerDied(Rank peer, const std::string& how, const std::string& hint) : PeerDied(facts_of(how, hint, peer)) {}
PeerUnreachable::PeerUnreachable(Rank peer, const std::string& how, const std::string& hint)
    : PeerDied(Kind::peer_unreachable, facts_of(how, hint, peer)) {}
SystemError::SystemError(int code, const std::string& message, const std::string& hint)
    : Error(Kind::system, facts_of(message + ": " + std::generic_category().message(code), hint), kExitFailed),
      code_(code) {}

std::string without_backtrace(std::string text) {
  const auto backtrace = text.find("\nException raised from ");
  if (backtrace == std::string::npos || log::enabled(log::Level::debug)) return text;
  text.erase(backtrace);
  return text;
}

std::string describe_bytes(std::size_t bytes) {
  if (bytes == 1) return "1 byte";
  if (bytes < 1024) return fmt::format("{} bytes", bytes);
  const char* unit = "KiB";
  double value = static_cast<double>(bytes) / 1024;
  for (const char* next : {"MiB", "GiB", "TiB"}) {
    if (value < 1024) break;
    value /= 1024;
    unit = next;
  }
  return fmt::format("{:.1f} {} ({} bytes)", value, unit, bytes);
}

}  // namespace lockstep
