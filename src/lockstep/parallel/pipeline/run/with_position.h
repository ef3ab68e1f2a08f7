// Adds to errors where in a step of a pipeline they occurred.
#pragma once

#include <c10/util/Exception.h>

#include <string>

#include "lockstep/communicator.h"
#include "lockstep/error.h"

namespace lockstep::pipeline {

// Runs `body`. Its errors are thrown again with where() as context and with the same type (c10::Error becomes Error).
// They no longer show the tag of a message, because where() says in words which message it is.
template <typename Where, typename Body>
void with_context_of(const Where& where, const Body& body) {
  try {
    body();
  } catch (const Error& error) {
    ErrorFacts facts = error.facts();
    facts.context.insert(facts.context.begin(), where());
    facts.tag.reset();
    std::rethrow_exception(error.with_facts(std::move(facts)));
  } catch (const c10::Error& error) {  // for example a layer whose input has a wrong shape
    throw Error(ErrorFacts{.context = {where()}, .message = error.what_without_backtrace()});
  }
}

// Runs `body`. The texts of its errors begin with "rank 1 DOING: ", where doing() says what this rank is doing. If a
// peer has died or is late, the launcher's report contains DOING, too.
template <typename Doing, typename Body>
void with_position(Communicator& comm, const Doing& doing, const Body& body) {
  try {
    with_context_of([&] { return "rank " + std::to_string(comm.world_rank()) + " " + doing(); }, body);
  } catch (const Error& error) {
    if (dynamic_cast<const PeerDied*>(&error) != nullptr || dynamic_cast<const TimedOut*>(&error) != nullptr)
      comm.report_waiting("it " + doing());
    throw;
  }
}

}  // namespace lockstep::pipeline
