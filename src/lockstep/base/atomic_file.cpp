#include "lockstep/base/atomic_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <random>

#include "lockstep/error.h"

namespace lockstep {
namespace {

constexpr mode_t kMode = 0666;  // the kernel removes the bits of the umask, as for any new file
constexpr int kAttempts = 100;

std::string folder_of(const std::string& path) {
  const auto parent = std::filesystem::path(path).parent_path();
  return parent.empty() ? "." : parent.string();
}

// A random name for a temporary file beside `path`. It may be taken already, so the caller must create the file
// exclusively and try again.
std::string neighbour(const std::string& path) {
  static thread_local std::mt19937 random{std::random_device{}()};
  return fmt::format("{}.{:06x}.tmp", path, random() & 0xff'ffff);
}

// Throws UsageError if the symbolic link at `path` must not be followed. In a folder where everybody may create files,
// such as /tmp, another user could have planted the link so that we replace one of our own files. The rule is the
// kernel's (fs.protected_symlinks): a link is followed if this user or the owner of the folder made it.
void check_link(const std::string& path) {
  struct stat link {
  }, folder{};
  if (::lstat(path.c_str(), &link) != 0 || ::stat(folder_of(path).c_str(), &folder) != 0) return;
  const bool open_to_all = (folder.st_mode & S_ISVTX) != 0 && (folder.st_mode & S_IWOTH) != 0;
  if (!open_to_all || link.st_uid == ::geteuid() || link.st_uid == folder.st_uid) return;
  throw UsageError(
      fmt::format("{} is a link that another user has made (uid {}), in a folder that everybody can write to", path,
                  link.st_uid),
      "another folder");
}

}  // namespace

AtomicFile::AtomicFile(const std::string& path) : path_(path) {
  std::error_code ignored;
  if (std::filesystem::is_symlink(path, ignored)) {
    check_link(path);
    path_ = std::filesystem::weakly_canonical(path, ignored).string();  // the target is replaced, not the link
  }
  if (std::filesystem::exists(path_, ignored) && !std::filesystem::is_regular_file(path_, ignored))
    throw UsageError(fmt::format("{} is not a regular file, and would be replaced by one", path_), "another name");
  folder_ = folder_of(path_);
  fd_ = Fd(::open(folder_.c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, kMode));
  for (int i = 0; !fd_ && i < kAttempts; ++i) {  // if the file system has no O_TMPFILE
    temporary_ = neighbour(path_);
    fd_ = Fd(::open(temporary_.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, kMode));
    if (!fd_) temporary_.clear();
    if (!fd_ && errno != EEXIST) break;
  }
  if (!fd_)
    throw SystemError(errno, fmt::format("can't write {}: no file can be made in {}", path_, folder_),
                      "another folder");
}

AtomicFile::~AtomicFile() {
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

void AtomicFile::write(ConstBytes bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd_.get(), bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw SystemError(errno, fmt::format("can't write {}", path_), "a disk with more room");
    bytes = bytes.subspan(static_cast<std::size_t>(n));
  }
}

// Gives the unnamed file a temporary name. linkat() cannot replace an existing file, and rename() needs a file that has
// a name, so commit() needs both.
void AtomicFile::give_name() {
  const std::string self = fmt::format("/proc/self/fd/{}", fd_.get());
  for (int i = 0; i < kAttempts; ++i) {
    std::string name = neighbour(path_);
    if (::linkat(AT_FDCWD, self.c_str(), AT_FDCWD, name.c_str(), AT_SYMLINK_FOLLOW) == 0) {
      temporary_ = std::move(name);
      return;
    }
    if (errno != EEXIST) break;
  }
  throw SystemError(errno, fmt::format("can't put {} in its place", path_));
}

void AtomicFile::commit() {
  if (::fsync(fd_.get()) != 0) throw SystemError(errno, fmt::format("can't write {}", path_), "a disk with more room");
  if (temporary_.empty()) give_name();
  if (std::rename(temporary_.c_str(), path_.c_str()) != 0)
    throw SystemError(errno, fmt::format("can't put {} in its place", path_));
  temporary_.clear();
  const Fd folder(::open(folder_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder || ::fsync(folder.get()) != 0)
    throw SystemError(errno, fmt::format("can't write the folder {}", folder_));
}

void write_file(const std::string& path, std::string_view text) {
  AtomicFile file(path);
  file.write(text);
  file.commit();
}

void check_can_write(const char* flag, const std::string& path) {
  if (path.empty()) return;
  std::error_code error;
  if (std::filesystem::is_directory(path, error))
    throw UsageError(fmt::format("{} {} is a folder", flag, path), "a file");
  if (std::filesystem::exists(path, error) && !std::filesystem::is_regular_file(path, error))
    throw UsageError(fmt::format("{} {} is not a regular file, and would be replaced by one", flag, path), "a file");
  const std::string folder = folder_of(path);
  if (!std::filesystem::is_directory(folder, error))
    throw UsageError(fmt::format("{} {}: there is no folder {}", flag, path, folder), "mkdir -p " + folder);
  if (::access(folder.c_str(), W_OK) != 0)
    throw UsageError(fmt::format("{} {}: the folder {} can't be written to", flag, path, folder), "another folder");
}

}  // namespace lockstep
