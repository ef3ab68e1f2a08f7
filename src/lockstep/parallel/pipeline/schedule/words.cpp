#include "lockstep/parallel/pipeline/schedule/words.h"

#include <fmt/format.h>

namespace lockstep::pipeline {

std::string in_words(const Action& action, Rank peer) {
  const auto [stage, kind, m] = action;
  switch (kind) {
    case Kind::F:
      return fmt::format("computes the forward of microbatch {} on stage {}", m, stage);
    case Kind::B:
      return fmt::format("computes the backward of microbatch {} on stage {}", m, stage);
    case Kind::I:
      return fmt::format("computes the gradient of the input for microbatch {} on stage {}", m, stage);
    case Kind::W:
      return fmt::format("computes the gradients of the weights for microbatch {} on stage {}", m, stage);
    case Kind::SEND_F:
      return fmt::format("sends the activation of microbatch {} to stage {} (rank {})", m, stage + 1, peer);
    case Kind::RECV_F:
      return fmt::format("waits for the activation of microbatch {} from stage {} (rank {})", m, stage - 1, peer);
    case Kind::SEND_B:
      return fmt::format("sends the gradient of microbatch {} to stage {} (rank {})", m, stage - 1, peer);
    case Kind::RECV_B:
      return fmt::format("waits for the gradient of microbatch {} from stage {} (rank {})", m, stage + 1, peer);
  }
  return to_string(action);
}

}  // namespace lockstep::pipeline
