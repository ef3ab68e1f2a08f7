// The exceptions of Lockstep. Their texts say what failed, on which rank, against which peer, the actual values, and
// the next thing to try.
#pragma once

#include <exception>
#include <stdexcept>
#include <string>

#include "lockstep/base/types.h"

namespace lockstep {

// The exit codes of Lockstep's programs. If signal N ended a rank, the code for that rank is 128 + N.
enum ExitCode : int {
  kExitOk = 0,
  kExitFailed = 1,
  kExitUsage = 2,
  kExitVerification = 3,
  kExitTimedOut = 4,
};

// The base class of all exceptions that Lockstep throws. `hint` is the next thing to try; what() shows the message and
// the hint in one line.
class Error : public std::runtime_error {
 public:
  explicit Error(const std::string& message, const std::string& hint = "", int exit_code = kExitFailed)
      : std::runtime_error(hint.empty() ? message : message + "; try: " + hint), exit_code_(exit_code) {}
  int exit_code() const { return exit_code_; }

 private:
  int exit_code_;
};

// The caller asked for something impossible: a bad flag, a bad variable, a rank outside the world.
class UsageError : public Error {
 public:
  explicit UsageError(const std::string& message, const std::string& hint = "") : Error(message, hint, kExitUsage) {}
};

// A deadline passed.
class TimedOut : public Error {
 public:
  explicit TimedOut(const std::string& message, const std::string& hint = "") : Error(message, hint, kExitTimedOut) {}
};

// Two ranks disagree about what they are doing.
class Mismatch : public Error {
 public:
  using Error::Error;
};

// Another rank is gone: killed, crashed, failed, or left before its peers were done with it.
class PeerDied : public Error {
 public:
  PeerDied(Rank peer, const std::string& message, const std::string& hint = "") : Error(message, hint), peer_(peer) {}
  Rank peer() const { return peer_; }

 private:
  Rank peer_;
};

// Another rank cannot be reached, although it may be alive: the network is cut, or the connection was reset. It is
// derived from PeerDied, so that a program that handles the loss of a rank handles both.
class PeerUnreachable : public PeerDied {
 public:
  using PeerDied::PeerDied;
};

// A copy of the error with the same type and the same peer, but with another text.
std::exception_ptr reworded(const PeerDied& error, const std::string& text);

// A system call failed with the errno `code`. The text ends with the description of that errno.
class SystemError : public Error {
 public:
  SystemError(int code, const std::string& message, const std::string& hint = "");
  int code() const { return code_; }

 private:
  int code_;
};

// The text of an exception without a backtrace. libtorch's exceptions carry a C++ backtrace of twenty lines behind
// their message; it is kept only with LOCKSTEP_LOG=debug.
std::string without_backtrace(std::string text);

// A size as messages show it: "12 bytes", "4.0 MiB (4194304 bytes)".
std::string describe_bytes(std::size_t bytes);

}  // namespace lockstep
