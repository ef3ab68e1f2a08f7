// Pipeline schedules as data: who computes what in which order, as one list of actions per rank. Nothing here runs; the
// lists can be printed, drawn, written to a file, and proven right (`lockstep schedule --verify`) before anything
// starts.
//
// A schedule says only what is computed. Lowering adds the sends and receives that follow from it; a schedule that has
// them is called lowered.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/named_values.h"
#include "lockstep/types.h"

namespace lockstep::pipeline {

// What an action does. The names are those of its text form.
enum class Kind {
  F,       // forward
  B,       // the whole backward: I and W in one
  I,       // backward, the gradient of the input, which the stage before waits for
  W,       // backward, the gradients of the weights, which nobody waits for before the optimizer
  SEND_F,  // sends the output of this stage's F to the stage after it
  RECV_F,  // receives the input of this stage's F from the stage before it
  SEND_B,  // sends the gradient of this stage's input to the stage before it
  RECV_B,  // receives the gradient of this stage's output from the stage after it
};

// An action of a pipeline schedule: one entry of a rank's list, as a stage, a kind and a microbatch. The text form is
// PyTorch's, so that lists can be compared: "0F0", "1B3", "2I1", "2W1"; a lowered schedule also has "0SEND_F0" and
// "1RECV_F0".
struct Action {
  int stage = 0;
  Kind kind = Kind::F;
  int microbatch = 0;

  bool operator==(const Action&) const = default;
};

bool is_send(Kind kind);
bool is_recv(Kind kind);
inline bool is_message(Kind kind) { return is_send(kind) || is_recv(kind); }

// The other end of a send or a receive: 0SEND_F2 and 1RECV_F2 belong together.
Action other_end(const Action& message);

std::string_view name_of(Kind kind);
std::string to_string(const Action& action);
// The inverse of to_string(). Throws a UsageError that contains the text. Numbers have at most six digits and no
// leading zeros.
Action parse_action(std::string_view text);

struct Schedule {
  std::string name;
  int stages = 0;  // all stages, including virtual ones
  int ranks = 0;
  int microbatches = 0;
  std::vector<Rank> rank_of_stage;
  std::vector<std::vector<Action>> actions;  // [rank], in the order in which the rank works
  std::string note = {};  // what was left out when the schedule was read from a file, as one sentence; may be empty

  bool operator==(const Schedule&) const = default;
};

// The built-in schedules: naive, gpipe, 1f1b, interleaved, zb-h1, zb-h2, zbv, v-half, v-min, dualpipev.
const std::vector<std::string>& schedule_names();

// Returns the schedule `name` for `ranks` ranks. `virtual_stages` is the number of stages on each rank: any number for
// interleaved (the default is 2), 2 for zbv, v-half, v-min and dualpipev, and 1 for the others. Stage s is on rank s
// mod ranks; but in zbv, v-half, v-min and dualpipev, which form a V, rank r has stages r and 2*ranks-1-r.
// Throws UsageError if there is no such schedule, or if the numbers do not fit it.
Schedule make_schedule(const std::string& name, int ranks, int microbatches, std::optional<int> virtual_stages = {});

// Throws the UsageError that says that a network of `layers` layers cannot have `stages` stages. For Lockstep itself.
[[noreturn]] void refuse_stages(int stages, std::int64_t layers);

// True if the schedule contains sends or receives.
bool is_lowered(const Schedule& schedule);

// The largest number of stages on one rank.
int virtual_stages(const Schedule& schedule);

// What is made equal among the stages into which a network is cut.
enum class Balance : std::uint8_t { count, parameters, time };

inline constexpr auto kBalances = named_values<Balance>(
    "balance", {{Balance::count, "count"}, {Balance::parameters, "parameters"}, {Balance::time, "time"}});
inline const char* name_of(Balance balance) { return kBalances.name_of(balance); }

// The times that the actions of a stage take, in any unit; B takes input + weight. All must be above 0.
struct Times {
  double forward = 1;
  double input = 1;
  double weight = 1;

  double of(Kind kind) const;
};

}  // namespace lockstep::pipeline

template <>
struct std::hash<lockstep::pipeline::Action> {
  std::size_t operator()(const lockstep::pipeline::Action& action) const noexcept {
    const auto mixed = (static_cast<std::size_t>(action.stage) * 8 + static_cast<std::size_t>(action.kind)) * 1'000'003;
    return mixed + static_cast<std::size_t>(action.microbatch);
  }
};
