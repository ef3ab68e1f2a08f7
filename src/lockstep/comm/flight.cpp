#include "lockstep/comm/flight.h"

#include <fmt/format.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "lockstep/base/environment.h"
#include "lockstep/base/fd.h"
#include "lockstep/collectives/call.h"

namespace lockstep::comm {

std::optional<transport::Label> Flight::find(std::uint64_t sequence) const {
  const Entry& entry = entries_[sequence % kKept];
  if (entry.state == State::none || transport_sequence(entry.fingerprint) != sequence) return std::nullopt;
  return entry.fingerprint;
}

std::string Flight::dump(const std::string& dir, Rank rank, const std::string& why) const noexcept try {
  std::vector<const Entry*> kept;
  for (const Entry& entry : entries_)
    if (entry.state != State::none) kept.push_back(&entry);
  std::sort(kept.begin(), kept.end(), [](const Entry* a, const Entry* b) {
    return transport_sequence(a->fingerprint) < transport_sequence(b->fingerprint);
  });

  const auto now = Clock::now();
  const auto ms = [](Duration duration) { return std::chrono::duration<double, std::milli>(duration).count(); };
  std::string text = fmt::format(
      "# The last {} collectives of rank {}, pid {}.\n# {}\n# state    began (ms ago)    took (ms)         bytes  "
      "collective\n",
      kept.size(), rank, ::getpid(), why);
  for (const Entry* entry : kept) {
    const char* state = entry->state == State::running ? "running" : entry->state == State::done ? "done" : "failed";
    const auto took = (entry->state == State::running ? now : entry->ended) - entry->began;
    text += fmt::format("{:<8} {:>16.3f} {:>12.3f} {:>13}  {}\n", state, ms(now - entry->began), ms(took), entry->bytes,
                        collectives::describe(entry->fingerprint));
  }

  std::string path = fmt::format("{}/lockstep-rank{}-XXXXXX", dir.empty() ? env("TMPDIR").value_or("/tmp") : dir, rank);
  const Fd file(::mkstemp(path.data()));
  if (!file || ::write(file.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size()))
    return fmt::format("nowhere: {}: {}", path, std::strerror(errno));
  return path;
} catch (...) {
  return "nowhere: out of memory";
}

}  // namespace lockstep::comm
