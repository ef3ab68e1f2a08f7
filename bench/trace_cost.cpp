// The cost of a span in a trace: medians over rounds, in nanoseconds per span.
//
//   trace_cost        prints {"loop_ns":..., "off_ns":..., "off_args_ns":..., "on_ns":..., "on_args_ns":...}
//
// "loop" has no span: it is the time of the loop itself, which the other figures include. "args" means three arguments,
// one of which is set later. "on" includes the first touch of the buffer's memory.
#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "lockstep/base/clock.h"
#include "lockstep/trace.h"
#include "lockstep/trace/rank_trace.h"

namespace {

using lockstep::trace::Recorder;
using lockstep::trace::Span;

constexpr int kRounds = 21;
constexpr int kSpans = 60'000;  // below the capacity, because a dropped span is cheaper

template <typename Body>
double ns_per_call(const Body& body) {
  const auto start = lockstep::Clock::now();
  for (int i = 0; i < kSpans; ++i) body(i);
  return lockstep::seconds_since(start) * 1e9 / kSpans;
}

double median(std::vector<double> samples) {
  std::ranges::sort(samples);
  return samples[samples.size() / 2];
}

}  // namespace

int main() {
  std::vector<double> loop;
  std::vector<double> off;
  std::vector<double> off_args;
  std::vector<double> on;
  std::vector<double> on_args;
  Recorder* volatile recorder = nullptr;  // volatile, so that the compiler does not know that it is null
  const auto plain = [&](int) { Span span(recorder, "plain", "bench"); };
  const auto with_args = [&](int i) {
    Span span(recorder, "with args", "bench", {{"bytes", i}, {"algorithm", "ring"}});
    span.arg("sequence", i);
  };
  for (int round = 0; round < kRounds; ++round) {
    recorder = nullptr;
    loop.push_back(ns_per_call([&](int) { [[maybe_unused]] const Recorder* unused = recorder; }));
    off.push_back(ns_per_call(plain));
    off_args.push_back(ns_per_call(with_args));
    Recorder first(0);
    recorder = &first;
    on.push_back(ns_per_call(plain));
    Recorder second(0);
    recorder = &second;
    on_args.push_back(ns_per_call(with_args));
  }
  fmt::print(R"({{"loop_ns": {:.2f}, "off_ns": {:.2f}, "off_args_ns": {:.2f}, "on_ns": {:.1f}, "on_args_ns": {:.1f}}})"
             "\n",
             median(loop), median(off), median(off_args), median(on), median(on_args));
}
