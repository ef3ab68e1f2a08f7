// The job's secret, as a user gives it: LOCKSTEP_SECRET, or a file that LOCKSTEP_SECRET_FILE names.
#pragma once

#include <cstddef>
#include <string>

namespace lockstep::rendezvous {

constexpr std::size_t kMinSecretBytes = 16;  // 128 bits, if they are random

// The secret, or an empty text if neither variable is set. Throws UsageError if both are set, if the secret is too
// short to resist guessing, or if others may read or change the file. The message never shows the secret.
std::string secret_from_environment();

}  // namespace lockstep::rendezvous
