// Watches the ranks of one job until nothing of it is left.
//
//   all ranks run --- a rank fails, Ctrl-C, SIGTERM, nobody reads us ---> a plan of signals is carried out
//        |                                                                       |
//        +-------------- every rank has ended <----------------------------------+
//                                |
//        what ranks left behind is ended --> output is read and written to the end --> the report, last of all
//
// It has one thread and one poll loop, without busy waiting. The loop is woken by signals, by the pipes and the writer,
// and when the next step of the plan is due.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "lockstep/base/clock.h"
#include "lockstep/launch/ending.h"
#include "lockstep/launch/options.h"
#include "lockstep/launch/output.h"
#include "lockstep/launch/rank_process.h"
#include "lockstep/launch/rank_table.h"
#include "lockstep/launch/signals.h"
#include "lockstep/rendezvous/store_server.h"

namespace lockstep::launch {

class Supervisor {
 public:
  // All arguments must outlive the supervisor. Nothing is started yet.
  Supervisor(const Options& options, rendezvous::StoreServer& store, const SignalInbox& signals, Watchdog& watchdog,
             Output& output);

  // Starts the ranks and watches them to the end. Returns what `lockstep run` returns. If a rank cannot be started, it
  // throws, and the supervisor's destructor ends the ranks that were started. `start` starts one rank. It calls its
  // second argument to learn whether it must give up, and then returns nothing.
  using Start = std::function<std::optional<RankProcess>(Rank, const std::function<bool()>&)>;
  int run(const Start& start);

 private:
  // Why the job is ended before its ranks ended by themselves. The first reason stays.
  enum class Reason { none, rank_failed, told_to_stop, reader_left, out_of_patience };

  void poll_once();
  int poll_timeout() const;
  void on_signal(int signal);
  void on_children();
  void stop_for(int signal);
  void begin(Reason reason, Ending ending);
  void carry_out_ending();
  void look_for_leftovers();
  void look_for_stopped_ranks();
  void look_for_absence();
  void lose_patience(const std::string& why);
  bool done();
  void gather_reports();
  void say_last_words();
  int exit_code();

  const Options& options_;
  rendezvous::StoreServer& store_;
  const SignalInbox& signals_;
  Output& output_;
  RankTable table_;

  Ending ending_;
  Clock::time_point ending_began_;
  std::size_t next_step_ = 0;

  Reason reason_ = Reason::none;
  int stop_signal_ = 0;        // the signal that told us to stop
  std::string lost_patience_;  // why the supervisor lost patience
  Clock::time_point began_ = Clock::now();
  std::optional<Clock::time_point> stopped_since_;  // since when only stopped ranks are left (RankTable::left_stopped)
  bool came_ = false;                               // some rank has reached the store
  bool warned_of_stopped_ = false;                  // the warning about stopped ranks was shown
  bool warned_of_absence_ = false;                  // the warning that no rank has come was shown
  std::optional<Clock::time_point> gone_at_;        // since when nothing of the job is left
  bool told_ = false;                               // the last message was handed to the output
  bool impatient_ = false;                          // do not wait for a slow reader of the output
};

}  // namespace lockstep::launch
