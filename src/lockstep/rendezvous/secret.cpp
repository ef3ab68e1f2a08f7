#include "lockstep/rendezvous/secret.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "lockstep/base/environment.h"
#include "lockstep/base/fd.h"
#include "lockstep/error.h"
#include "lockstep/rendezvous/dial.h"

namespace lockstep::rendezvous {
namespace {

constexpr std::size_t kMaxFileBytes = 4096;
constexpr const char* kMakeOne = "(umask 077; openssl rand -hex 32 > FILE)";

[[noreturn]] void refuse_file(const std::string& path, const std::string& why, const std::string& hint) {
  throw UsageError(fmt::format("LOCKSTEP_SECRET_FILE is '{}': {}", path, why), hint);
}

// The checks are made on the open file, so that nobody can put another file in its place between the checks and the
// reading.
std::string read_secret_file(const std::string& path) {
  const Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));  // opening a FIFO must not block
  if (!file) refuse_file(path, std::strerror(errno), fmt::format("make one: {}", kMakeOne));
  struct stat info {};
  if (::fstat(file.get(), &info) != 0 || !S_ISREG(info.st_mode))
    refuse_file(path, "it is not a regular file", "a file");
  if (info.st_uid != ::geteuid() && info.st_uid != 0)
    refuse_file(path, fmt::format("it belongs to {}, who can change it", describe_user(info.st_uid)),
                "a file of this user");
  if ((info.st_mode & 077) != 0)
    refuse_file(path, fmt::format("its mode is {:04o}, so that others can read or change it", info.st_mode & 07777),
                fmt::format("chmod 600 {}, and a new secret: others may have read this one", path));
  std::string text(kMaxFileBytes + 1, '\0');
  const ssize_t got = ::read(file.get(), text.data(), text.size());
  if (got < 0) refuse_file(path, std::strerror(errno), "a file on a local disk");
  if (static_cast<std::size_t>(got) > kMaxFileBytes)
    refuse_file(path, fmt::format("it is longer than {} bytes", kMaxFileBytes), kMakeOne);
  text.resize(static_cast<std::size_t>(got));
  // An editor may have added a line end.
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r')) text.pop_back();
  return text;
}

}  // namespace

std::string secret_from_environment() {
  const auto direct = env("LOCKSTEP_SECRET");
  const auto file = env("LOCKSTEP_SECRET_FILE");
  if (direct && file) throw UsageError("LOCKSTEP_SECRET and LOCKSTEP_SECRET_FILE are both set", "unset one of them");
  if (!direct && !file) return "";
  std::string secret = direct ? *direct : read_secret_file(*file);
  if (secret.size() < kMinSecretBytes)
    throw UsageError(fmt::format("the secret in {} has {} bytes, which can be guessed; {} are the least",
                                 direct ? "LOCKSTEP_SECRET" : *file, secret.size(), kMinSecretBytes),
                     direct ? "LOCKSTEP_SECRET=$(openssl rand -hex 32), the same on every rank" : kMakeOne);
  return secret;
}

}  // namespace lockstep::rendezvous
