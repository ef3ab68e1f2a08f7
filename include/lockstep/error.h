// The exceptions of Lockstep. Each carries facts (which rank, which peer, which operation, what to try next), and its
// text is made from them.
//
//   try {
//     comm.all_reduce(gradients);
//   } catch (const lockstep::PeerDied& died) {
//     // died.peer() is gone; died.facts().operation is what this rank was doing
//   }
//
// Errors can be copied without throwing. An error that several threads see is never changed: with_context() and
// with_facts() make a copy of the same type.
#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "lockstep/types.h"

namespace lockstep {

// The exit codes of Lockstep's programs. If signal N ended a rank, the code for that rank is 128 + N.
enum ExitCode : int {
  kExitOk = 0,
  kExitFailed = 1,        // anything else
  kExitUsage = 2,         // wrong flags, variables or arguments
  kExitVerification = 3,  // a result or a schedule is wrong
  kExitTimedOut = 4,      // a deadline passed
};

constexpr Rank kNoRank = -1;

// The facts of an error. A field is empty (or kNoRank) if it does not apply, or if the fact appears only in the text of
// `message`. Ranks are numbered as in the world.
struct ErrorFacts {
  std::vector<std::string> context =
      {};                            // where it happened, outermost first: "rank 1 computes stage 0 of an inference"
  Rank rank = kNoRank;               // the rank that reports the error
  std::string operation = {};        // what it was doing: "all_reduce 121 (float32, ...)", "recv of 8 bytes from ..."
  std::optional<Tag> tag = {};       // the lower 16 bits of a message's tag, which the program gave
  std::uint64_t message_number = 0;  // number of the message to or from the peer, from 1 on; 0 if it is no message
  std::string message = {};          // what happened; if a peer is gone, how it ended: "rank 2 died (signal 9)"
  Rank peer = kNoRank;               // the rank that the error is about
  std::vector<std::string> notes = {};  // what else helps: "this rank's last collectives are in FILE"
  std::string hint = {};                // the next thing to try
};

// The base class of all exceptions that Lockstep throws.
class Error : public std::runtime_error {
 public:
  enum class Kind : std::uint8_t { failed, usage, timed_out, mismatch, peer_died, peer_unreachable, system };

  explicit Error(const std::string& message, const std::string& hint = "", int exit_code = kExitFailed);
  explicit Error(ErrorFacts facts);

  Kind kind() const { return kind_; }
  const ErrorFacts& facts() const { return *facts_; }
  int exit_code() const { return exit_code_; }

  // A copy of the same type that has other facts. A derived class overrides it with copy_with(*this, std::move(facts)).
  virtual std::exception_ptr with_facts(ErrorFacts facts) const;

 protected:
  Error(Kind kind, ErrorFacts facts, int exit_code);
  template <typename Derived>
  static std::exception_ptr copy_with(const Derived& error, ErrorFacts facts) {
    Derived copy(error);
    copy.set_facts(std::move(facts));
    return std::make_exception_ptr(copy);
  }

 private:
  void set_facts(ErrorFacts facts);

  std::shared_ptr<const ErrorFacts> facts_;
  Kind kind_;
  int exit_code_;
};

// A copy of the error, of the same type, whose text begins with `where` and a colon.
std::exception_ptr with_context(const Error& error, const std::string& where);

// The caller asked for something impossible: a bad flag, a bad variable, a rank outside the world.
class UsageError : public Error {
 public:
  explicit UsageError(const std::string& message, const std::string& hint = "");
  explicit UsageError(ErrorFacts facts) : Error(Kind::usage, std::move(facts), kExitUsage) {}
  std::exception_ptr with_facts(ErrorFacts facts) const override { return copy_with(*this, std::move(facts)); }
};

// A deadline passed.
class TimedOut : public Error {
 public:
  explicit TimedOut(const std::string& message, const std::string& hint = "");
  explicit TimedOut(ErrorFacts facts) : Error(Kind::timed_out, std::move(facts), kExitTimedOut) {}
  std::exception_ptr with_facts(ErrorFacts facts) const override { return copy_with(*this, std::move(facts)); }
};

// Two ranks disagree about what they are doing.
class Mismatch : public Error {
 public:
  explicit Mismatch(const std::string& message, const std::string& hint = "");
  explicit Mismatch(ErrorFacts facts) : Error(Kind::mismatch, std::move(facts), kExitFailed) {}
  std::exception_ptr with_facts(ErrorFacts facts) const override { return copy_with(*this, std::move(facts)); }
};

// Another rank is gone: killed, crashed, failed, or left before its peers were done with it.
class PeerDied : public Error {
 public:
  PeerDied(Rank peer, const std::string& how, const std::string& hint = "");
  explicit PeerDied(ErrorFacts facts) : PeerDied(Kind::peer_died, std::move(facts)) {}
  Rank peer() const { return facts().peer; }
  std::exception_ptr with_facts(ErrorFacts facts) const override { return copy_with(*this, std::move(facts)); }

 protected:
  PeerDied(Kind kind, ErrorFacts facts) : Error(kind, std::move(facts), kExitFailed) {}
};

// Another rank cannot be reached, although it may be alive: the network is cut, or the connection was reset. It is
// derived from PeerDied, so that a program that handles the loss of a rank handles both.
class PeerUnreachable : public PeerDied {
 public:
  PeerUnreachable(Rank peer, const std::string& how, const std::string& hint = "");
  std::exception_ptr with_facts(ErrorFacts facts) const override { return copy_with(*this, std::move(facts)); }
};

// A system call failed with the errno `code`. The text ends with the description of that errno.
class SystemError : public Error {
 public:
  SystemError(int code, const std::string& message, const std::string& hint = "");
  int code() const { return code_; }
  std::exception_ptr with_facts(ErrorFacts facts) const override { return copy_with(*this, std::move(facts)); }

 private:
  int code_;
};

// The text of an exception without a backtrace. libtorch's exceptions carry a C++ backtrace of twenty lines behind
// their message; it is kept only with LOCKSTEP_LOG=debug.
std::string without_backtrace(std::string text);

// A size as messages show it: "12 bytes", "4.0 MiB (4194304 bytes)".
std::string describe_bytes(std::size_t bytes);

}  // namespace lockstep
