#include "lockstep/rendezvous/handshake.h"

#include <fmt/format.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include <algorithm>
#include <cctype>
#include <cstring>
#include <vector>

#include "lockstep/base/clock.h"
#include "lockstep/error.h"
#include "lockstep/rendezvous/socket.h"

namespace lockstep::rendezvous {
namespace {

constexpr std::array<char, 8> kMagic = {'L', 'O', 'C', 'K', 'S', 'T', 'P', '1'};

void fill_random(void* out, std::size_t size) {
  if (RAND_bytes(static_cast<unsigned char*>(out), static_cast<int>(size)) != 1)
    throw Error("the system's random source failed");
}

Proof prove(const std::string& secret, const char* label, const Nonce& server, const Nonce& client,
            const Claim& claim) {
  std::vector<unsigned char> text;
  const auto append = [&](const void* data, std::size_t size) {
    const auto* first = static_cast<const unsigned char*>(data);
    text.insert(text.end(), first, first + size);
  };
  append(label, std::strlen(label) + 1);
  append(server.data(), server.size());
  append(client.data(), client.size());
  append(&claim, sizeof claim);
  Proof proof{};
  unsigned int length = 0;
  if (HMAC(EVP_sha256(), secret.data(), static_cast<int>(secret.size()), text.data(), text.size(), proof.data(),
           &length) == nullptr ||
      length != proof.size())
    throw Error("HMAC-SHA256 failed");
  return proof;
}

bool equal(const Proof& a, const Proof& b) { return CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0; }

}  // namespace

Greeting greet() {
  Greeting greeting{kMagic, {}};
  fill_random(greeting.nonce.data(), greeting.nonce.size());
  return greeting;
}

std::optional<Claim> verify(const std::string& secret, const Greeting& greeting, const Introduction& introduction) {
  const Proof expected = prove(secret, "client", greeting.nonce, introduction.nonce, introduction.claim);
  if (introduction.magic != kMagic || !equal(expected, introduction.proof)) return std::nullopt;
  return introduction.claim;
}

Answer accept(const std::string& secret, const Greeting& greeting, const Introduction& introduction) {
  return {1, prove(secret, "server", greeting.nonce, introduction.nonce, introduction.claim), {}};
}

Answer refuse(const std::string& reason) {
  Answer answer{};
  std::memcpy(answer.reason.data(), reason.data(), std::min(reason.size(), answer.reason.size() - 1));
  return answer;
}

Greeting read_greeting(const Fd& connection, const Deadline& deadline) {
  Greeting greeting{};
  read_exact(connection, writable_bytes_of(greeting), deadline);
  if (greeting.magic != kMagic)
    throw Error(fmt::format("{} does not speak Lockstep's protocol", describe_peer(connection)),
                "another port: something else listens there");
  return greeting;
}

void introduce(const Fd& connection, const Greeting& greeting, const std::string& secret, const Claim& claim,
               const Deadline& deadline) {
  Introduction introduction{kMagic, {}, claim, {}};
  fill_random(introduction.nonce.data(), introduction.nonce.size());
  introduction.proof = prove(secret, "client", greeting.nonce, introduction.nonce, claim);
  write_all(connection, bytes_of(introduction), deadline);
  Answer answer{};
  read_exact(connection, writable_bytes_of(answer), deadline);
  if (answer.accepted == 0) {
    answer.reason.back() = '\0';
    std::string reason = answer.reason.data();
    std::replace_if(
        reason.begin(), reason.end(), [](unsigned char c) { return std::isprint(c) == 0; }, '?');
    throw Error(fmt::format("{} refused this process: {}", describe_peer(connection), reason));
  }
  if (!equal(answer.proof, prove(secret, "server", greeting.nonce, introduction.nonce, claim)))
    throw Error(fmt::format("{} does not know this job's secret", describe_peer(connection)),
                "the same LOCKSTEP_SECRET on every rank");
}

std::string fresh_secret() {
  std::array<std::uint8_t, 32> bytes{};
  fill_random(bytes.data(), bytes.size());
  std::string hex;
  for (const auto byte : bytes) hex += fmt::format("{:02x}", byte);
  return hex;
}

std::uint64_t fresh_instance() {
  std::uint64_t instance = 0;
  fill_random(&instance, sizeof instance);
  return instance;
}

}  // namespace lockstep::rendezvous
