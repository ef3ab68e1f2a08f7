// Who is calling? Both ends of a connection prove that they know the job's secret before anything else is said.
//
//   server                                                      client
//     Greeting   magic, server's nonce                     -->
//                                                          <--  Introduction  client's nonce, claim, proof
//     Answer     accepted or a reason; server's proof      -->
//
// A proof is HMAC-SHA256 with the secret over a label, both nonces and the claim. Nonces are fresh, so a recorded
// connection can't be played again. Without a secret (all ranks on one host, on a Unix socket) the key is empty and the
// peer's uid, which the kernel vouches for, is what counts. This authenticates; it does not encrypt.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "lockstep/base/clock.h"
#include "lockstep/base/fd.h"
#include "lockstep/base/types.h"

namespace lockstep::rendezvous {

// What the client says of itself. Plain data: it travels as it lies in memory.
struct Claim {
  enum Purpose : std::uint32_t { store = 1, data = 2 };
  std::uint32_t purpose = store;
  std::int32_t rank = -1;  // -1: not a rank, only a client of the store
  std::int32_t world = 0;
  std::int32_t generation = 0;
  std::uint64_t instance = 0;  // drawn once by each process: tells a second connection from a second process
};

using Nonce = std::array<std::uint8_t, 32>;
using Proof = std::array<std::uint8_t, 32>;

struct Greeting {
  std::array<char, 8> magic;
  Nonce nonce;
};
struct Introduction {
  std::array<char, 8> magic;
  Nonce nonce;
  Claim claim;
  Proof proof;
};
struct Answer {
  std::uint8_t accepted;
  Proof proof;
  std::array<char, 255> reason;  // zero-terminated, empty when accepted
};
static_assert(sizeof(Greeting) == 40 && sizeof(Introduction) == 96 && sizeof(Answer) == 288);

Greeting greet();
// The claim when the introduction's proof is right, else nothing.
std::optional<Claim> verify(const std::string& secret, const Greeting& greeting, const Introduction& introduction);
Answer accept(const std::string& secret, const Greeting& greeting, const Introduction& introduction);
Answer refuse(const std::string& reason);

// The client's side, on a fresh connection: first the greeting, then the rest. introduce() throws Error with the
// server's reason when refused.
Greeting read_greeting(const Fd& connection, const Deadline& deadline);
void introduce(const Fd& connection, const Greeting& greeting, const std::string& secret, const Claim& claim,
               const Deadline& deadline);

// 64 hex digits from the system's random source.
std::string fresh_secret();
std::uint64_t fresh_instance();

}  // namespace lockstep::rendezvous
