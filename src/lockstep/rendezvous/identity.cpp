#include "lockstep/rendezvous/identity.h"

#include <fmt/format.h>
#include <openssl/evp.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <optional>
#include <sstream>

#include "lockstep/base/environment.h"
#include "lockstep/base/error.h"

namespace lockstep::rendezvous {
namespace {

constexpr int kMaxRanks = 1 << 16;

// The variables of one launcher. The first two must come together; the others may be missing.
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
    throw UsageError(fmt::format("{} is set but {} is not", size ? family.size : family.rank,
                                 size ? family.rank : family.size),
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

void require_secret(const Place& place) {
  if (!place.secret.empty() || place.address.is_loopback() || env("LOCKSTEP_INSECURE") == "1") return;
  throw UsageError(fmt::format("the store's address {} can be reached from other hosts and LOCKSTEP_SECRET is not set",
                               place.address.text()),
                   "export the same LOCKSTEP_SECRET on every rank (or LOCKSTEP_INSECURE=1 on a network that you trust)");
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
  return fmt::format("parent {} {}", ::getppid(), process_start_time(::getppid()));
}

Place place_from_environment(const Identity& identity) {
  Place place;
  place.secret = env("LOCKSTEP_SECRET").value_or("");
  if (const auto store = env("LOCKSTEP_STORE")) {
    place.address = Address::parse("LOCKSTEP_STORE", *store);
    place.serve = identity.rank == 0 && !env("LOCKSTEP_LAUNCHER");  // set by `lockstep run`, which serves it itself
    require_secret(place);
    return place;
  }
  place.serve = identity.rank == 0;
  if (identity.one_host) {
    place.address =
        Address::unix_socket(fmt::format("@lockstep-{}-{}", ::getuid(), sha256_hex(job_name()).substr(0, 32)));
    place.check_uid = true;
    return place;
  }
  const auto host = env("MASTER_ADDR");
  const auto port = env_int("MASTER_PORT", 1, 65535);
  if (!host || !port)
    throw UsageError(fmt::format("the {} ranks are on several hosts and none of them knows where to meet", identity.size),
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
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  std::string text;
  std::getline(file, text);
  const auto name_end = text.rfind(')');  // the name may hold spaces and brackets
  if (name_end == std::string::npos) return 0;
  std::istringstream fields(text.substr(name_end + 1));
  std::string field;
  for (int i = 3; i <= 22; ++i) fields >> field;  // field 22 is the start time
  return fields ? std::stoull(field) : 0;
}

}  // namespace lockstep::rendezvous
