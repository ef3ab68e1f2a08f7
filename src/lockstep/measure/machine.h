// Where and when a figure was measured.
#pragma once

#include <nlohmann/json_fwd.hpp>

namespace lockstep::measure {

// The version of Lockstep, the host, its processor, and the date in UTC.
nlohmann::json about_machine();

}  // namespace lockstep::measure
