#include "lockstep/measure/machine.h"

#include <array>
#include <ctime>
#include <nlohmann/json.hpp>

#include "lockstep/base/cpu.h"
#include "lockstep/base/environment.h"

namespace lockstep::measure {

nlohmann::json about_machine() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  ::gmtime_r(&now, &utc);
  std::array<char, sizeof "2000-01-01T00:00:00Z"> date{};
  std::strftime(date.data(), date.size(), "%Y-%m-%dT%H:%M:%SZ", &utc);
  return {{"version", LOCKSTEP_VERSION}, {"host", hostname()}, {"processor", cpu_model()}, {"date", date.data()}};
}

}  // namespace lockstep::measure
