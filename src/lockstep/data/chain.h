// The Markov chain from which tokens are drawn (tokens() in lockstep/data.h). Needs no libtorch, because reports use
// it, too.
//
// Each token is followed by one of kSuccessors other tokens (by one of all, if the vocabulary has fewer). The first of
// them is twice as likely as the second, the second twice as likely as the third, and so on. Which tokens they are is
// drawn at random, so that each token is equally frequent: token t is followed by P[t + i mod vocabulary], with a
// random permutation P and i from 0 to kSuccessors - 1.
#pragma once

#include <cstdint>
#include <vector>

namespace lockstep::data {

inline constexpr std::int64_t kSuccessors = 4;

// The probabilities of a token's successors, the largest first. They are the same for all tokens.
std::vector<double> successor_probabilities(std::int64_t vocabulary);

// The conditional entropy of a token if the one before it is known, in nats: 1.1369 if there are at least 4 tokens. No
// model has a smaller mean cross-entropy on tokens that it has not seen.
double chain_entropy(std::int64_t vocabulary);

}  // namespace lockstep::data
