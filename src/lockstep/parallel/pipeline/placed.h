// Errors that say where in a pipeline's step they came up.
#pragma once

#include <c10/util/Exception.h>

#include <string>

#include "lockstep/base/error.h"
#include "lockstep/comm/communicator.h"

namespace lockstep::pipeline {

// "recv of 8 bytes from rank 2, tag 71" without the tag: the position says in words which message it is.
inline std::string without_tags(std::string text) {
  static const std::string kTag = ", tag ";
  for (std::size_t at = text.find(kTag); at != std::string::npos; at = text.find(kTag, at)) {
    const std::size_t end = text.find_first_not_of("0123456789", at + kTag.size());
    text.erase(at, (end == std::string::npos ? text.size() : end) - at);
  }
  return text;
}

// Runs `body`; what it throws gets `where()` in front and keeps its kind.
template <typename Where, typename Body>
void with_prefix(const Where& where, const Body& body) {
  try {
    body();
  } catch (const PeerDied& error) {
    std::rethrow_exception(reworded(error, where() + without_tags(error.what())));
  } catch (const TimedOut& error) {
    throw TimedOut(where() + without_tags(error.what()));
  } catch (const Mismatch& error) {
    throw Mismatch(where() + without_tags(error.what()));
  } catch (const UsageError& error) {
    throw UsageError(where() + error.what());
  } catch (const c10::Error& error) {  // a layer that can't take what it got
    throw Error(where() + error.what_without_backtrace());
  }
}

// Runs `body`; what it throws begins with "rank 1 DOING: ", where `doing` gives what this rank does, and keeps its
// kind. When a peer is gone or late, the launcher's report says DOING, too.
template <typename Doing, typename Body>
void placed(Communicator& comm, const Doing& doing, const Body& body) {
  const auto tell = [&] { comm.report_waiting("it " + doing()); };
  try {
    with_prefix([&] { return "rank " + std::to_string(comm.world_rank()) + " " + doing() + ": "; }, body);
  } catch (const PeerDied&) {
    tell();
    throw;
  } catch (const TimedOut&) {
    tell();
    throw;
  }
}

}  // namespace lockstep::pipeline
