// Errors that say where in a pipeline's step they came up.
#pragma once

#include <c10/util/Exception.h>

#include "lockstep/base/error.h"

namespace lockstep::pipeline {

// Runs `body`; what it throws gets `where` in front and keeps its kind.
template <typename Where, typename Body>
void placed(const Where& where, const Body& body) {
  try {
    body();
  } catch (const PeerDied& error) {
    std::rethrow_exception(reworded(error, where() + error.what()));
  } catch (const TimedOut& error) {
    throw TimedOut(where() + error.what());
  } catch (const Mismatch& error) {
    throw Mismatch(where() + error.what());
  } catch (const UsageError& error) {
    throw UsageError(where() + error.what());
  } catch (const c10::Error& error) {  // a layer that can't take what it got
    throw Error(where() + error.what_without_backtrace());
  }
}

}  // namespace lockstep::pipeline
