#include "lockstep/train/atomic_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>

#include "lockstep/base/error.h"

namespace lockstep::train {
namespace {

// What a file that open(2) makes would get. The mask can only be read by setting it.
mode_t usual_mode() {
  const mode_t mask = ::umask(0);
  ::umask(mask);
  return 0666 & ~mask;
}

}  // namespace

AtomicFile::AtomicFile(const std::string& path) : path_(path) {
  std::error_code ignored;
  if (std::filesystem::is_symlink(path, ignored))  // what it points to is replaced, not the link
    path_ = std::filesystem::weakly_canonical(path, ignored).string();
  if (std::filesystem::exists(path_, ignored) && !std::filesystem::is_regular_file(path_, ignored))
    throw UsageError(fmt::format("{} is not a regular file, and would be replaced by one", path_), "another name");
  const auto parent = std::filesystem::path(path_).parent_path();
  folder_ = parent.empty() ? "." : parent.string();
  temporary_ = path_ + ".XXXXXX";
  fd_ = Fd(::mkostemp(temporary_.data(), O_CLOEXEC));
  if (!fd_) {
    temporary_.clear();
    throw SystemError(errno, fmt::format("can't make a file in {}", folder_), "another folder");
  }
  ::fchmod(fd_.get(), usual_mode());
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

void AtomicFile::commit() {
  if (::fsync(fd_.get()) != 0) throw SystemError(errno, fmt::format("can't write {}", path_));
  if (std::rename(temporary_.c_str(), path_.c_str()) != 0)
    throw SystemError(errno, fmt::format("can't put {} in its place", path_));
  temporary_.clear();
  const Fd folder(::open(folder_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder || ::fsync(folder.get()) != 0)
    throw SystemError(errno, fmt::format("can't write the folder {}", folder_));
}

}  // namespace lockstep::train
