#include "lockstep/comm/flight_recorder.h"

#include <fmt/format.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>
#include <vector>

#include "lockstep/base/environment.h"
#include "lockstep/base/fd.h"
#include "lockstep/collectives/call.h"

namespace lockstep::comm {
namespace {

namespace fs = std::filesystem;

// This user's folder for dumps, which is made if it is missing. Empty if its name is taken by something else, such as a
// link or a folder of another user: old files are removed from the folder, so it must be our own.
std::string own_folder(const std::string& temporary) {
  std::string folder = fmt::format("{}/lockstep-{}", temporary, ::getuid());
  ::mkdir(folder.c_str(), 0700);
  struct stat info {};
  const bool mine = ::lstat(folder.c_str(), &info) == 0 && S_ISDIR(info.st_mode) && info.st_uid == ::getuid();
  return mine ? folder : "";
}

// Removes old dumps until `count` are left, `mine` among them. Other ranks may do the same at the same time, so a file
// that has already gone is no error.
void keep_newest(const std::string& folder, const fs::path& mine, std::size_t count) {
  std::vector<std::pair<fs::file_time_type, fs::path>> files;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored))
    if (entry.path() != mine && entry.path().filename().native().starts_with("lockstep-rank"))
      files.emplace_back(entry.last_write_time(ignored), entry.path());
  std::sort(files.rbegin(), files.rend());
  for (std::size_t i = count - 1; i < files.size(); ++i) fs::remove(files[i].second, ignored);
}

}  // namespace

std::optional<Fingerprint> FlightRecorder::find(std::uint64_t sequence) const {
  const Entry& entry = entries_[sequence % kKept];
  if (entry.state == State::none || entry.fingerprint.sequence() != sequence) return std::nullopt;
  return entry.fingerprint;
}

std::string FlightRecorder::dump(const std::string& dir, Rank rank, const std::string& why) const noexcept try {
  std::vector<const Entry*> kept;
  for (const Entry& entry : entries_)
    if (entry.state != State::none) kept.push_back(&entry);
  std::sort(kept.begin(), kept.end(),
            [](const Entry* a, const Entry* b) { return a->fingerprint.sequence() < b->fingerprint.sequence(); });

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
                        entry->fingerprint.text());
  }

  const std::string temporary = env("TMPDIR").value_or("/tmp");
  const std::string own = dir.empty() ? own_folder(temporary) : "";
  const std::string folder = !dir.empty() ? dir : !own.empty() ? own : temporary;
  std::string path = fmt::format("{}/lockstep-rank{}-XXXXXX", folder, rank);
  const Fd file(::mkstemp(path.data()));
  if (!file || ::write(file.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size()))
    return fmt::format("nowhere: {}: {}", path, std::strerror(errno));
  if (own.empty()) return path;
  keep_newest(own, path, kDumps);
  return fmt::format("{} (the newest {} of such files are kept)", path, kDumps);
} catch (...) {
  return "nowhere: out of memory";
}

}  // namespace lockstep::comm
