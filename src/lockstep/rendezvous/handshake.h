// The handshake in which both ends of a connection prove that they know the job's secret, before anything else is sent.
//
//   server                                                      client
//     Greeting   magic, server's nonce                     -->
//                                                          <--  Introduction  client's nonce, claim, proof
//     Answer     accepted or a reason; server's proof      -->
//
// A proof is an HMAC-SHA256 with the secret as its key, over a label, both nonces and the claim. The nonces are fresh,
// so a recorded connection cannot be replayed. Without a secret (all ranks on one host, on a Unix socket) the key is
// empty, and the peer's uid, which the kernel guarantees, is checked instead. The handshake authenticates a connection;
// it does not encrypt it.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "lockstep/base/clock.h"
#include "lockstep/base/fd.h"
#include "lockstep/types.h"

namespace lockstep::rendezvous {

// What the client says about itself. It is sent as it lies in memory.
struct Claim {
  enum Purpose : std::uint32_t { store = 1, data = 2 };
  std::uint32_t purpose = store;
  std::int32_t rank = -1;  // -1 for a client of the store that is not a rank
  std::int32_t world = 0;
  std::int32_t generation = 0;
  std::uint64_t instance = 0;  // random number of a rank: a second process that claims the same rank has another one
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
  std::array<char, 255> reason;  // zero-terminated; empty if accepted
};
static_assert(sizeof(Greeting) == 40 && sizeof(Introduction) == 96 && sizeof(Answer) == 288);

Greeting greet();
// Returns the claim if the introduction's proof is right, and nothing otherwise.
std::optional<Claim> verify(const std::string& secret, const Greeting& greeting, const Introduction& introduction);
Answer accept(const std::string& secret, const Greeting& greeting, const Introduction& introduction);
Answer refuse(const std::string& reason);

// The client's side, on a new connection: first read_greeting(), then introduce(). They throw Error if the server does
// not speak this protocol or does not know the secret. If the server refuses, the Error carries its reason.
Greeting read_greeting(const Fd& connection, const Deadline& deadline);
void introduce(const Fd& connection, const Greeting& greeting, const std::string& secret, const Claim& claim,
               const Deadline& deadline);

// A secret of 64 hex digits from a cryptographic random source.
std::string fresh_secret();
std::uint64_t fresh_instance();

}  // namespace lockstep::rendezvous
