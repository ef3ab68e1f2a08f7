// An action of a pipeline schedule: what a rank does at one step, as a stage, a kind and a microbatch. The text form is
// PyTorch's, so that lists can be compared: "0F0", "1B3", "2I1", "2W1"; a lowered schedule also has "0SEND_F0" and
// "1RECV_F0".
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace lockstep::pipeline {

// The names are those of the text form.
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

}  // namespace lockstep::pipeline

template <>
struct std::hash<lockstep::pipeline::Action> {
  std::size_t operator()(const lockstep::pipeline::Action& action) const noexcept {
    const auto mixed = (static_cast<std::size_t>(action.stage) * 8 + static_cast<std::size_t>(action.kind)) * 1'000'003;
    return mixed + static_cast<std::size_t>(action.microbatch);
  }
};
