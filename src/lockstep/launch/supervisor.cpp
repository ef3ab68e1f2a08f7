#include "lockstep/launch/supervisor.h"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "lockstep/base/clock.h"
#include "lockstep/base/environment.h"
#include "lockstep/base/log.h"
#include "lockstep/error.h"

namespace lockstep::launch {
namespace {

constexpr auto kLookEvery = 1s;
constexpr auto kWarnAfter = 10s;

double in_seconds(Duration duration) { return std::chrono::duration<double>(duration).count(); }

}  // namespace

Supervisor::Supervisor(const Options& options, rendezvous::StoreServer& store, const SignalInbox& signals,
                       Watchdog& watchdog, Output& output)
    : options_(options), store_(store), signals_(signals), output_(output), table_(options.ranks, watchdog) {}

int Supervisor::run(const Start& start) {
  const auto told_to_stop = [this] {
    while (const auto signal = signals_.next()) on_signal(*signal);
    return reason_ == Reason::told_to_stop;
  };
  for (Rank rank = 0; rank < options_.ranks && !told_to_stop(); ++rank) {
    std::optional<RankProcess> process = start(rank, told_to_stop);
    if (!process) break;
    log::debug("rank {} is pid {}", rank, process->pid);
    table_.add(rank, process->pid);
    output_.attach(rank, std::move(process->out), std::move(process->err));
  }
  while (!done()) poll_once();
  return exit_code();
}

void Supervisor::poll_once() {
  std::vector<pollfd> entries = {{signals_.fd(), POLLIN, 0}};
  output_.add_to(entries);
  if (::poll(entries.data(), entries.size(), poll_timeout()) < 0 && errno != EINTR)
    throw SystemError(errno, "poll failed");
  while (const auto signal = signals_.next()) on_signal(*signal);
  output_.pump(gone_at_.has_value());
  if (output_.reader_left()) begin(Reason::reader_left, by_termination(options_.grace));
  carry_out_ending();
  look_for_stopped_ranks();
  look_for_absence();
  look_for_leftovers();
}

int Supervisor::poll_timeout() const {
  using std::chrono::milliseconds;
  Duration timeout = std::chrono::hours(1);
  if (next_step_ < ending_.steps.size())
    timeout = std::min(timeout, ending_began_ + ending_.steps[next_step_].after - Clock::now());
  if (reason_ == Reason::none && ((options_.must_meet_within && !came_) || table_.alive() < options_.ranks))
    timeout = std::min<Duration>(timeout, kLookEvery);
  if (output_.next_pump() != Clock::time_point::max()) timeout = std::min(timeout, output_.next_pump() - Clock::now());
  // Most of what is left reports its end by SIGCHLD. The timeout is for what does not, and for a reader of our output
  // who does not read.
  if (table_.alive() == 0) timeout = std::min<Duration>(timeout, 100ms);
  return static_cast<int>(std::max<std::int64_t>(0, std::chrono::ceil<milliseconds>(timeout).count()));
}

void Supervisor::on_signal(int signal) {
  switch (signal) {
    case SIGCHLD:
      return on_children();
    case SIGUSR1:
    case SIGUSR2:
    case SIGCONT:
      return table_.pass_on(signal);
    case SIGTSTP:
      table_.pass_on(SIGSTOP);
      ::kill(::getpid(), SIGSTOP);
      return table_.pass_on(SIGCONT);  // after SIGCONT this process goes on here
    default:
      return stop_for(signal);
  }
}

void Supervisor::stop_for(int signal) {
  if (gone_at_) {
    impatient_ = true;
    return;
  }
  if (reason_ == Reason::none) {
    stop_signal_ = signal;
    const int alive = table_.alive();
    output_.say(fmt::format("lockstep run: {}, stopping {} rank{}{}",
                            signal == SIGINT ? "interrupted" : fmt::format("got SIG{}", ::sigabbrev_np(signal)), alive,
                            alive == 1 ? "" : "s", signal == SIGINT ? " (again to kill at once)" : ""));
  }
  const bool ending = ending_.urgency != Urgency::none;
  if (signal == SIGQUIT || (signal == SIGINT && ending))
    begin(Reason::told_to_stop, at_once());
  else if (signal == SIGINT)
    begin(Reason::told_to_stop, after_interrupt(options_.grace));
  else
    begin(Reason::told_to_stop, by_termination(options_.grace));
}

void Supervisor::on_children() {
  const std::vector<Rank> ended = table_.reap();
  // This comes before anything else, because survivors wait for it to say how their peer ended.
  for (const Rank rank : ended)
    store_.set(fmt::format("exit/{}", rank), describe_status(table_.ends()[index_of(rank)].status));
  for (const Rank rank : ended) {
    const RankEnd& end = table_.ends()[index_of(rank)];
    log::debug("rank {} ended: {}", rank, describe_status(end.status));
    if (end.status != 0 && end.signalled == 0) begin(Reason::rank_failed, after_failure(options_.grace));
  }
}

void Supervisor::begin(Reason reason, Ending ending) {
  if (reason_ == Reason::none) reason_ = reason;
  if (ending.urgency <= ending_.urgency) return;
  ending_ = std::move(ending);
  ending_began_ = Clock::now();
  next_step_ = 0;
}

void Supervisor::carry_out_ending() {
  for (; next_step_ < ending_.steps.size(); ++next_step_) {
    const EndingStep& step = ending_.steps[next_step_];
    if (Clock::now() < ending_began_ + step.after) return;
    if (gone_at_) continue;
    log::debug("SIG{} to the ranks that are left", ::sigabbrev_np(step.signal));
    table_.end_with(step.signal);
  }
}

void Supervisor::look_for_leftovers() {
  if (gone_at_ || table_.alive() > 0) return;
  on_children();
  if (table_.nothing_left()) {
    gone_at_ = Clock::now();
    return;
  }
  begin(Reason::none, by_termination(options_.grace));
  carry_out_ending();
  // A process whose parent was killed may have become our child only now.
  if (next_step_ == ending_.steps.size()) table_.end_with(SIGKILL);
}

void Supervisor::lose_patience(const std::string& why) {
  lost_patience_ = why;
  begin(Reason::out_of_patience, by_termination(options_.grace));
}

// A rank that computes for a long time after its peers have left is left alone. A rank that is stopped would keep the
// job for ever.
void Supervisor::look_for_stopped_ranks() {
  const std::vector<Rank> stopped = reason_ == Reason::none ? table_.left_stopped() : std::vector<Rank>{};
  if (stopped.empty()) {
    stopped_since_.reset();
    return;
  }
  if (!stopped_since_) stopped_since_ = Clock::now();
  const Duration waited = Clock::now() - *stopped_since_;
  const std::string what = fmt::format("{} {} stopped (SIGSTOP), and all others have ended", name_ranks(stopped),
                                       stopped.size() == 1 ? "is" : "are");
  if (waited >= options_.stopped_patience)
    return lose_patience(
        fmt::format("{}; waited {:.3g} s. LOCKSTEP_TIMEOUT sets how long; try: kill -CONT, to let it go on", what,
                    in_seconds(options_.stopped_patience)));
  if (waited >= kWarnAfter && !std::exchange(warned_of_stopped_, true))
    output_.say(fmt::format("lockstep run: {}; the job is ended in {:.0f} s", what,
                            in_seconds(options_.stopped_patience - waited)));
}

void Supervisor::look_for_absence() {
  const Duration waited = Clock::now() - began_;
  if (!options_.must_meet_within || reason_ != Reason::none || came_ ||
      waited < std::min<Duration>(kWarnAfter, *options_.must_meet_within))
    return;
  came_ = !store_.ranks_seen().empty();
  if (came_) return;
  if (!std::exchange(warned_of_absence_, true))
    output_.say(fmt::format("lockstep run: no rank has reached the store after {:.0f} s", in_seconds(waited)));
  if (waited >= *options_.must_meet_within)
    lose_patience(fmt::format(
        "no rank has reached the store within {:.3g} s; try: see what the ranks are doing (ps, gdb -p), and check "
        "ulimit -u and -n",
        in_seconds(*options_.must_meet_within)));
}

bool Supervisor::done() {
  if (!gone_at_) return false;
  if (output_.drained() && output_.flushed() && !told_) {
    told_ = true;
    say_last_words();
  }
  if (reason_ == Reason::told_to_stop && Clock::now() > *gone_at_ + std::max<Duration>(options_.grace, 500ms))
    impatient_ = true;
  return impatient_ || (told_ && output_.flushed());
}

void Supervisor::gather_reports() {
  for (RankEnd& end : table_.ends()) {
    end.error = store_.get(fmt::format("error/{}", end.rank)).value_or("");
    end.waiting = store_.get(fmt::format("waiting/{}", end.rank)).value_or("");
    end.last_words = output_.last_words(end.rank);
  }
}

void Supervisor::say_last_words() {
  gather_reports();
  switch (reason_) {
    case Reason::rank_failed:
      return output_.say(failure_report(
          {hostname(), table_.ends(), options_.to_file == kNeither ? "" : options_.log_dir, output_.coloured()}));
    case Reason::told_to_stop: {
      std::vector<Rank> killed;
      for (const RankEnd& end : table_.ends())
        if (end.signalled == SIGKILL) killed.push_back(end.rank);
      if (!killed.empty()) output_.say(fmt::format("lockstep run: {} had to be killed", name_ranks(killed)));
      return;
    }
    case Reason::reader_left:
      return;
    case Reason::out_of_patience:
      return output_.say("lockstep run: " + lost_patience_);
    case Reason::none:
      if (const std::string failure = output_.write_failure(); !failure.empty())
        output_.say("lockstep run: " + failure);
  }
}

int Supervisor::exit_code() {
  switch (reason_) {
    case Reason::rank_failed:
      gather_reports();
      return code_of(first_failure(table_.ends())->status);
    case Reason::told_to_stop:
      return 128 + stop_signal_;
    case Reason::reader_left:
      return 128 + SIGPIPE;
    case Reason::out_of_patience:
      return kExitTimedOut;
    case Reason::none:
      break;
  }
  return output_.write_failure().empty() ? kExitOk : kExitFailed;
}

}  // namespace lockstep::launch
