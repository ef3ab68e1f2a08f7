// Adds to errors where in a step of a pipeline they occurred.
#pragma once

#include <c10/util/Exception.h>

#include <string>

#include "lockstep/base/error.h"
#include "lockstep/comm/communicator.h"

namespace lockstep::pipeline {

// Removes the tag from messages such as "recv of 8 bytes from rank 2, tag 71", because the position says in words which
// message it is.
inline std::string without_tags(std::string text) {
  static const std::string kTag = ", tag ";
  for (std::size_t at = text.find(kTag); at != std::string::npos; at = text.find(kTag, at)) {
    const std::size_t end = text.find_first_not_of("0123456789", at + kTag.size());
    text.erase(at, (end == std::string::npos ? text.size() : end) - at);
  }
  return text;
}

// Runs `body`. Its errors are thrown again with where() in front of the message and with the same type (c10::Error
// becomes Error).
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
  } catch (const c10::Error& error) {  // for example a layer whose input has a wrong shape
    throw Error(where() + error.what_without_backtrace());
  }
}

// Runs `body`. The messages of its errors begin with "rank 1 DOING: ", where doing() says what this rank is doing;
// their types are kept. If a peer has died or is late, the launcher's report contains DOING, too.
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
