// What a rank does at one step of a pipeline schedule: a stage, a kind, a microbatch. Written as PyTorch writes it, so
// that lists can be compared: "0F0", "1B3", "2I1", "2W1"; once lowered also "0SEND_F0", "1RECV_F0".
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace lockstep::pipeline {

// The names are the text form.
enum class Kind {
  F,       // forward
  B,       // backward, whole: I and W in one
  I,       // backward, the gradient of the input: what the stage before waits for
  W,       // backward, the gradients of the weights: nobody waits for them before the optimizer
  SEND_F,  // the output of this stage's F, to the stage after it
  RECV_F,  // the input of this stage's F, from the stage before it
  SEND_B,  // the gradient of this stage's input, to the stage before it
  RECV_B,  // the gradient of this stage's output, from the stage after it
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

// The other end of a send or a receive: 0SEND_F2 and 1RECV_F2 are each other's.
Action other_end(const Action& message);

std::string_view name_of(Kind kind);
std::string to_string(const Action& action);
// The inverse. A UsageError names the text. Numbers have at most six digits.
Action parse_action(std::string_view text);

}  // namespace lockstep::pipeline

template <>
struct std::hash<lockstep::pipeline::Action> {
  std::size_t operator()(const lockstep::pipeline::Action& action) const noexcept {
    const auto mixed = (static_cast<std::size_t>(action.stage) * 8 + static_cast<std::size_t>(action.kind)) * 1'000'003;
    return mixed + static_cast<std::size_t>(action.microbatch);
  }
};
