#include "lockstep/measure/winner.h"

#include <fmt/format.h>

#include <algorithm>

#include "lockstep/base/environment.h"

namespace lockstep::measure {
namespace {

constexpr double kTie = 1.05;

bool sends(const Contender& one) { return one.messages > 0; }

// A cost in which algorithms differ.
struct Fact {
  const char* what;
  double Contender::*value;
  bool is_bytes;

  std::string text(double number) const { return is_bytes ? brief_bytes(number) : fmt::format("{:g}", number); }
};

// The first two cost time per step, the others per byte.
constexpr std::size_t kByStep = 2;
constexpr Fact kFacts[] = {{"steps", &Contender::steps, false},
                           {"messages in all", &Contender::messages_of_all, false},
                           {"bytes sent by a rank", &Contender::bytes, true},
                           {"bytes summed by a rank", &Contender::summed, true}};

// True if `a` is clearly less than `b`: an algorithm may send one element more than its formula says, if the number of
// ranks does not divide the count.
bool less(double a, double b) { return a < b * 0.97; }

// A contender that should be faster by all counts; usually there is none.
const Contender* better_by_all_counts(const Contender& first, const std::vector<Contender>& contenders) {
  for (const Contender& other : contenders) {
    if (!sends(other)) continue;
    bool never_worse = true;
    bool once_better = false;
    for (const Fact& fact : kFacts) {
      never_worse = never_worse && !less(first.*fact.value, other.*fact.value);
      once_better = once_better || less(other.*fact.value, first.*fact.value);
    }
    if (never_worse && once_better) return &other;
  }
  return nullptr;
}

// Why `first` is faster than the others that send messages.
std::string by_counts(const Contender& first, const std::vector<Contender>& contenders) {
  if (const Contender* other = better_by_all_counts(first, contenders))
    return fmt::format("The counts do not tell why: {} has no more of anything. It is how ranks wait here, or noise.",
                       name_of(other->algorithm));
  std::string fewest;
  std::string more;
  bool by_step = false;
  bool by_byte = false;
  for (std::size_t i = 0; i < std::size(kFacts); ++i) {
    const Fact& fact = kFacts[i];
    const double mine = first.*fact.value;
    double least = mine;
    double most = mine;
    for (const Contender& other : contenders)
      if (sends(other)) {
        least = std::min(least, other.*fact.value);
        most = std::max(most, other.*fact.value);
      }
    if (less(least, mine)) {
      more +=
          fmt::format("{}{} {} instead of {}", more.empty() ? "" : ", ", fact.text(mine), fact.what, fact.text(least));
    } else if (less(mine, most)) {
      fewest += fmt::format("{}{} ({}, others up to {})", fewest.empty() ? "" : ", ", fact.what, fact.text(mine),
                            fact.text(most));
      (i < kByStep ? by_step : by_byte) = true;
    }
  }
  if (fewest.empty()) return more.empty() ? "All counts are alike." : fmt::format("It is the best mix: {}.", more);
  std::string text = fmt::format("Nobody has fewer {}.", fewest);
  if (more.empty()) return text;
  text += fmt::format(" It pays elsewhere: {}.", more);
  if (by_step && !by_byte) text += " At this size steps cost more than bytes.";
  if (by_byte && !by_step) text += " At this size bytes cost more than steps.";
  return text;
}

std::string reason(const Contender& first, const std::vector<Contender>& contenders) {
  if (sends(first)) return by_counts(first, contenders);
  std::string text =
      "It sends no message at all: each rank reads its chunk from every rank's buffer in shared memory and writes the "
      "sum into all of them.";
  const Contender* next = nullptr;
  int others = 0;
  for (const Contender& one : contenders) {
    if (!sends(one)) continue;
    ++others;
    if (next == nullptr || one.microseconds < next->microseconds) next = &one;
  }
  if (others > 1)
    text += fmt::format(" Among those that send messages {} is fastest. {}", name_of(next->algorithm),
                        by_counts(*next, contenders));
  return text;
}

}  // namespace

const Contender& winner(const std::vector<Contender>& contenders) {
  return *std::min_element(contenders.begin(), contenders.end(),
                           [](const Contender& a, const Contender& b) { return a.microseconds < b.microseconds; });
}

std::string why_it_wins(const std::vector<Contender>& contenders) {
  const Contender& first = winner(contenders);
  const Contender* second = nullptr;
  for (const Contender& one : contenders)
    if (&one != &first && (second == nullptr || one.microseconds < second->microseconds)) second = &one;
  if (second == nullptr) return fmt::format("{} ran alone.", name_of(first.algorithm));
  const double ahead = second->microseconds / first.microseconds;
  const std::string result =
      ahead < kTie ? fmt::format("{} and {} are level.", name_of(first.algorithm), name_of(second->algorithm))
                   : fmt::format("{} wins, {:.1f} times as fast as {}.", name_of(first.algorithm), ahead,
                                 name_of(second->algorithm));
  return fmt::format("{} {}", result, reason(first, contenders));
}

}  // namespace lockstep::measure
