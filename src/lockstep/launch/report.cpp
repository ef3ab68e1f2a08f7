#include "lockstep/launch/report.h"

#include <fmt/format.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstring>
#include <tuple>
#include <utility>

#include "lockstep/error.h"

namespace lockstep::launch {
namespace {

constexpr std::size_t kFoldAbove = 8;    // with more ranks than this, equal lines become one line
constexpr std::size_t kMostOthers = 16;  // the largest number of lines about other ranks
constexpr const char* kIndent = "\n               ";

// Makes text from ranks fit for the report: continued lines are indented, and control characters are replaced.
std::string clean(const std::string& text) {
  std::string out;
  const auto end = text.find_last_not_of(" \t\r\n");
  for (const char c : text.substr(0, end == std::string::npos ? 0 : end + 1)) {
    if (c == '\n')
      out += kIndent;
    else if (c == '\t')
      out += ' ';
    else if (c != '\r')
      out += static_cast<unsigned char>(c) < 32 || c == 127 ? '?' : c;
  }
  return out;
}

std::string row(const char* label, const std::string& text) { return fmt::format("\n  {:<13}{}", label, text); }

std::string signal_name(int signal) {
  const char* name = ::sigabbrev_np(signal);
  return name == nullptr ? fmt::format("signal {}", signal) : fmt::format("SIG{}", name);
}

std::string describe_end(int status) {
  return (WIFSIGNALED(status) ? "was ended by " : "ended with ") + describe_status(status);
}

bool timed_out(const RankEnd& end) { return end.signalled == 0 && code_of(end.status) == kExitTimedOut; }

// True if the rank ended because of another rank, as far as it knew.
bool is_victim(const RankEnd& end) { return !end.waiting.empty() && end.error.empty(); }

std::string ended_by_launcher(const RankEnd& end) {
  return fmt::format("was {}ended by the launcher ({})", end.stopped ? "stopped, and " : "",
                     signal_name(end.signalled));
}

// What happened to a rank, as words that follow its name. For several ranks, the caller turns "was" into "were".
std::string fate(const RankEnd& end, const RankEnd& cause) {
  if (!end.waiting.empty()) return (timed_out(end) ? "timed out: " : "was waiting: ") + clean(end.waiting);
  const std::string own_words = end.error.empty() ? "" : ": " + clean(end.error);
  if (end.signalled != 0) return ended_by_launcher(end) + own_words;
  if (end.status == 0 && end.round < cause.round) return "had left with exit code 0";
  return describe_end(end.status) + own_words;
}

std::vector<std::string> describe_others(const std::vector<RankEnd>& ends, const RankEnd& cause) {
  std::vector<std::pair<std::string, std::vector<Rank>>> fates;
  for (const RankEnd& end : ends) {
    if (end.rank == cause.rank) continue;
    std::string text = fate(end, cause);
    const auto same = std::find_if(fates.begin(), fates.end(), [&](const auto& known) { return known.first == text; });
    if (ends.size() > kFoldAbove && same != fates.end())
      same->second.push_back(end.rank);
    else
      fates.emplace_back(std::move(text), std::vector{end.rank});
  }
  std::vector<std::string> lines;
  std::size_t unnamed = 0;
  for (auto& [text, ranks] : fates) {
    if (lines.size() == kMostOthers) {
      unnamed += ranks.size();
      continue;
    }
    if (ranks.size() > 1 && text.starts_with("was ")) text.replace(0, 3, "were");
    lines.push_back(fmt::format("{} {}", name_ranks(ranks), text));
  }
  if (unnamed > 0) lines.push_back(fmt::format("... and {} more ranks", unnamed));
  return lines;
}

}  // namespace

std::string describe_status(int status) {
  if (!WIFSIGNALED(status)) return fmt::format("exit code {}", WEXITSTATUS(status));
  const char* description = ::sigdescr_np(WTERMSIG(status));
  return fmt::format("signal {} ({})", WTERMSIG(status), description == nullptr ? "unknown" : description);
}

int code_of(int status) { return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status); }

const RankEnd* first_failure(std::span<const RankEnd> ends) {
  const auto order = [](const RankEnd& end) {
    return std::tuple(is_victim(end), end.round, !WIFSIGNALED(end.status), end.rank);
  };
  const RankEnd* first = nullptr;
  for (const RankEnd& end : ends) {
    if (end.status == 0 || end.signalled != 0) continue;
    if (first == nullptr || order(end) < order(*first)) first = &end;
  }
  return first;
}

const RankEnd* first_cause(std::span<const RankEnd> ends) {
  const RankEnd* failure = first_failure(ends);
  if (failure == nullptr) return nullptr;
  if (timed_out(*failure)) {  // another rank kept it waiting: one that was stopped, if there is one
    const auto stopped = std::find_if(ends.begin(), ends.end(), [](const RankEnd& end) { return end.stopped; });
    return stopped == ends.end() ? failure : &*stopped;
  }
  if (!is_victim(*failure)) return failure;
  const RankEnd* cause = failure;
  for (const RankEnd& end : ends) {
    if (end.status != 0 || end.signalled != 0 || end.round > failure->round) continue;
    if (cause == failure || end.round > cause->round) cause = &end;
  }
  return cause;
}

std::string name_ranks(std::span<const Rank> ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < ranks.size();) {
    std::size_t last = i;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    if (i > 0) text += ", ";
    text += std::to_string(ranks[i]);
    if (last > i) text += fmt::format("-{}", ranks[last]);
    i = last + 1;
  }
  return text;
}

std::string failure_report(const Failure& failure) {
  const RankEnd& cause = *first_cause(failure.ends);
  const std::string fate_of_cause = cause.signalled != 0 ? ended_by_launcher(cause)
                                    : cause.status == 0  ? "left early (exit code 0)"
                                                         : describe_end(cause.status);
  const char* red = failure.colour ? "\x1b[1;31m" : "";
  const char* plain = failure.colour ? "\x1b[0m" : "";
  std::string text = fmt::format("{}lockstep run: FAILED{}", red, plain);
  text += row("first cause", fmt::format("{}rank {} (host {}, pid {}) {}{}", red, cause.rank, failure.host, cause.pid,
                                         fate_of_cause, plain));
  if (!cause.error.empty()) text += row("error", clean(cause.error));
  if (!cause.waiting.empty()) text += row("waiting", clean(cause.waiting));
  if (cause.status != 0 && cause.error.empty() && cause.waiting.empty()) {
    const char* label = "last words";
    for (const std::string& line : cause.last_words) text += row(std::exchange(label, ""), clean(line));
  }
  const char* label = "others";
  for (const std::string& line : describe_others(failure.ends, cause)) text += row(std::exchange(label, ""), line);
  if (!failure.log_dir.empty()) text += row("logs", failure.log_dir);
  return text + row("exit code", std::to_string(code_of(first_failure(failure.ends)->status)));
}

}  // namespace lockstep::launch
