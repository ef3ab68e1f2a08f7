#include "lockstep/rendezvous/identity.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <openssl/evp.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <iterator>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "lockstep/base/environment.h"
#include "lockstep/base/fd.h"
#include "lockstep/error.h"
#include "lockstep/rendezvous/secret.h"

namespace lockstep::rendezvous {
namespace {

constexpr int kMaxRanks = 1 << 16;

// The variables of one launcher. `rank` and `size` must be set together; the others may be missing.
struct Family {
  const char* name;
  const char* rank;
  const char* size;
  const char* local_rank;
  const char* local_size;
};

constexpr Family kFamilies[] = {
    {"RANK and WORLD_SIZE", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"},
    {"Open MPI's mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE"},
    {"a PMI launcher (MPICH's mpirun)", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
    {"Slurm", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "SLURM_NTASKS_PER_NODE"},
};

std::optional<Identity> read_family(const Family& family) {
  const auto size = env_int(family.size, 1, kMaxRanks);
  const auto rank = env_int(family.rank, 0, kMaxRanks - 1);
  if (!size && !rank) return std::nullopt;
  if (!size || !rank)
    throw UsageError(
        fmt::format("{} is set but {} is not", size ? family.size : family.rank, size ? family.rank : family.size),
        "set both, or neither for a world of one");
  if (*rank >= *size)
    throw UsageError(fmt::format("{}={} is outside the world: {}={}", family.rank, *rank, family.size, *size),
                     fmt::format("ranks 0 to {}", *size - 1));
  Identity identity;
  identity.source = family.name;
  identity.rank = static_cast<Rank>(*rank);
  identity.size = static_cast<int>(*size);
  const auto local_size = env_int(family.local_size, 1, kMaxRanks);
  identity.local_size = static_cast<int>(local_size.value_or(*size));
  identity.local_rank =
      static_cast<int>(env_int(family.local_rank, 0, kMaxRanks - 1).value_or(*rank % identity.local_size));
  const auto master = env("MASTER_ADDR");
  identity.one_host = local_size ? *local_size >= *size : !master || Address{*master, 0, ""}.is_loopback();
  if (env_int("SLURM_NNODES", 1, kMaxRanks).value_or(1) > 1 && family.rank == std::string_view("SLURM_PROCID"))
    identity.one_host = false;
  return identity;
}

std::string sha256_hex(const std::string& text) {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int length = 0;
  if (EVP_Digest(text.data(), text.size(), digest, &length, EVP_sha256(), nullptr) != 1) throw Error("SHA-256 failed");
  std::string hex;
  for (unsigned int i = 0; i < length; ++i) hex += fmt::format("{:02x}", digest[i]);
  return hex;
}

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// The fields of /proc/PID/stat from field 3 on, as proc(5) counts them. Empty if the process is gone. Throws
// SystemError if the file cannot be opened for another reason.
std::vector<std::string> stat_fields(int pid) {
  const Fd file(::open(fmt::format("/proc/{}/stat", pid).c_str(), O_RDONLY | O_CLOEXEC));
  if (!file && errno != ENOENT && errno != ESRCH)
    throw SystemError(errno, fmt::format("cannot look at process {}", pid), "a higher `ulimit -n`");
  std::string text(4096, '\0');  // the line has at most some hundred bytes
  const ssize_t got = file ? ::read(file.get(), text.data(), text.size()) : 0;
  text.resize(static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
  const auto name_end = text.rfind(')');  // the process name may contain spaces and brackets
  if (name_end == std::string::npos) return {};
  std::istringstream fields(text.substr(name_end + 1));
  return {std::istream_iterator<std::string>(fields), {}};
}

int parent_of(int pid) {
  const auto fields = stat_fields(pid);
  return fields.size() > 1 ? std::stoi(fields[1]) : 0;
}

// True if the process was itself started as this rank: then it is a wrapper around us, such as `timeout` or `strace`.
bool started_as_this_rank(int pid) {
  std::istringstream entries(read_file(fmt::format("/proc/{}/environ", pid)));
  for (std::string entry; std::getline(entries, entry, '\0');)
    for (const Family& family : kFamilies)
      if (const auto rank = env(family.rank); rank && entry == fmt::format("{}={}", family.rank, *rank)) return true;
  return false;
}

// The process that started all ranks: the nearest ancestor that is not a wrapper around this rank. If that is a
// subshell (a copy of its parent that has not called exec), it is the shell itself.
int common_parent() {
  int pid = ::getppid();
  while (pid > 1 && started_as_this_rank(pid)) pid = parent_of(pid);
  const auto command = [](int process) { return read_file(fmt::format("/proc/{}/cmdline", process)); };
  for (int above = parent_of(pid); above > 1 && command(above) == command(pid); above = parent_of(pid)) pid = above;
  return pid;
}

// Throws UsageError if a secret is needed and missing. Strangers are kept out only by a secret, or by checking the
// peer's user id. The kernel tells the user id for Unix sockets alone: a port on loopback is open to every user of the
// host.
void require_secret(const Place& place) {
  if (!place.secret.empty() || place.address.is_unix() || env("LOCKSTEP_INSECURE") == "1") return;
  throw UsageError(
      fmt::format("the store's address {} can be reached by {}, and neither LOCKSTEP_SECRET nor LOCKSTEP_SECRET_FILE "
                  "is set",
                  place.address.text(), place.address.is_loopback() ? "every user of this host" : "other hosts"),
      "the same LOCKSTEP_SECRET_FILE on every rank, made by `(umask 077; openssl rand -hex 32 > FILE)` (or "
      "LOCKSTEP_INSECURE=1 where you trust everybody who can connect)");
}

}  // namespace

Identity identity_from_environment() {
  Identity identity;
  for (const Family& family : kFamilies)
    if (const auto found = read_family(family)) {
      identity = *found;
      break;
    }
  const char* restarts = env("LOCKSTEP_GENERATION") ? "LOCKSTEP_GENERATION" : "TORCHELASTIC_RESTART_COUNT";
  identity.generation = static_cast<int>(env_int(restarts, 0, 1 << 30).value_or(0));
  return identity;
}

std::string job_name() {
  if (const auto job = env("LOCKSTEP_JOB")) return "job " + *job;
  const auto port = env("MASTER_PORT");
  if (const auto run = env("TORCHELASTIC_RUN_ID")) return fmt::format("torchrun {} {}", *run, port.value_or(""));
  if (port && env("RANK")) return fmt::format("master {}:{}", env("MASTER_ADDR").value_or(""), *port);
  if (const auto space = env("PMIX_NAMESPACE")) return "pmix " + *space;
  if (const auto job = env("SLURM_JOB_ID"); job && env("SLURM_PROCID"))
    return fmt::format("slurm {}.{}", *job, env("SLURM_STEP_ID").value_or(""));
  const int parent = common_parent();
  return fmt::format("parent {} {}", parent, process_start_time(parent));
}

Place place_from_environment(const Identity& identity) {
  Place place;
  place.secret = secret_from_environment();
  if (const auto store = env("LOCKSTEP_STORE")) {
    place.address = Address::parse("LOCKSTEP_STORE", *store);
    if (!place.address.is_unix() && place.address.port == 0)
      throw UsageError(fmt::format("LOCKSTEP_STORE is '{}': with port 0 the ranks can't find each other", *store),
                       "a port from 1 to 65535 that is free on that host");
    place.by_launcher = env("LOCKSTEP_LAUNCHER").has_value();
    place.serve = identity.rank == 0 && !place.by_launcher;
    place.check_uid = place.address.is_unix() && place.secret.empty();
    require_secret(place);
    return place;
  }
  place.serve = identity.rank == 0;
  if (identity.one_host) {
    place.address =
        Address::unix_socket(fmt::format("@lockstep-{}-{}", ::geteuid(), sha256_hex(job_name()).substr(0, 32)));
    place.check_uid = true;
    return place;
  }
  const auto host = env("MASTER_ADDR");
  const auto port = env_int("MASTER_PORT", 1, 65535);
  if (!host || !port)
    throw UsageError(
        fmt::format("the {} ranks are on several hosts and none of them knows where to meet", identity.size),
        "LOCKSTEP_STORE=host:port (rank 0 serves it there) and LOCKSTEP_SECRET on every rank");
  place.address = {*host, static_cast<int>(*port), ""};
  require_secret(place);
  return place;
}

std::string host_identity() {
  std::string boot_id;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot_id;
  const auto inode = [](const char* path) {
    struct stat info {};
    return ::stat(path, &info) == 0 ? info.st_ino : 0;
  };
  return fmt::format("{}/{}/{}", boot_id, inode("/proc/self/ns/net"), inode("/proc/self/ns/pid"));
}

std::uint64_t process_start_time(int pid) {
  const auto fields = stat_fields(pid);
  if (fields.size() <= 19 || fields[0] == "Z" || fields[0] == "X") return 0;
  return std::stoull(fields[19]);  // field 22 of proc(5)
}

bool process_is(int pid, std::uint64_t started) noexcept {
  try {
    return process_start_time(pid) == started;
  } catch (const std::exception&) {
    return true;
  }
}

}  // namespace lockstep::rendezvous
