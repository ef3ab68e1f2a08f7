// Watches the ranks of one job until nothing of it is left.
//
//   all ranks run --- a rank fails, Ctrl-C, SIGTERM, nobody reads us ---> a plan of signals is carried out
//        |                                                                       |
//        +-------------- every rank has ended <----------------------------------+
//                                |
//        what ranks left behind is ended --> output is read and written to the end --> the report, last of all
//
// One thread, one poll loop, no busy waiting: signals, pipes and the writer wake it, and the plan's next step.
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
  // All must outlive it. Nothing is started yet.
  Supervisor(const Options& options, rendezvous::StoreServer& store, const SignalInbox& signals, Watchdog& watchdog,
             Output& output);

  // Starts the ranks and stays with them to the end. Returns what `lockstep run` returns. When a rank can't be started
  // it throws, and those that were are gone.
  // `start` makes one rank; it asks its second argument whether to give up, and then returns nothing.
  using Start = std::function<std::optional<RankProcess>(Rank, const std::function<bool()>&)>;
  int run(const Start& start);

 private:
  // Why the job ends before its ranks did; what comes first stays.
  enum class Reason { none, rank_failed, told_to_stop, reader_left, out_of_patience };

  void poll_once();
  int poll_timeout() const;
  void on_signal(int signal);
  void on_children();
  void stop_for(int signal);
  void begin(Reason reason, Plan plan);
  void carry_out_plan();
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

  Plan plan_;
  Clock::time_point plan_began_;
  std::size_t next_step_ = 0;

  Reason reason_ = Reason::none;
  int stop_signal_ = 0;        // when told to stop
  std::string lost_patience_;  // why, when out of patience
  Clock::time_point began_ = Clock::now();
  std::optional<Clock::time_point> stopped_since_;  // all ranks that are left are stopped, and others have ended
  bool came_ = false;                               // some rank has reached the store
  bool warned_ = false;                             // that it waits
  std::optional<Clock::time_point> gone_at_;        // since when nothing of the job is left
  bool told_ = false;                               // our last words are on their way
  bool impatient_ = false;                          // do not wait for a slow reader
};

}  // namespace lockstep::launch
