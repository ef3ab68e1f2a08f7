// The job's secret, as a user gives it: LOCKSTEP_SECRET, or a file that LOCKSTEP_SECRET_FILE names.
#pragma once

#include <cstddef>
#include <string>

namespace lockstep::rendezvous {

constexpr std::size_t kMinSecretBytes = 16;  // 128 bits, if they are random

// Empty when neither variable is set. Throws UsageError when both are, when the secret is too short to resist guessing,
// and when others may read the file. The message never shows the secret.
std::string secret_from_environment();

}  // namespace lockstep::rendezvous
