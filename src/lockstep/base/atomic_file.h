// How this project writes files: a file appears whole, under its name, or not at all.
//
// Where the file system allows it, the bytes go to a file without a name (O_TMPFILE), which the kernel removes by
// itself however the process ends. Elsewhere they go to a temporary file in the same folder; only a process that is
// killed leaves that behind.
#pragma once

#include <string>
#include <string_view>

#include "lockstep/base/fd.h"
#include "lockstep/base/types.h"

namespace lockstep {

// One thread. A file that was at `path` before stays as it is until commit(). Throws SystemError.
class AtomicFile {
 public:
  // UsageError if `path` is something else than a regular file. A symbolic link is followed.
  explicit AtomicFile(const std::string& path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;

  void write(ConstBytes bytes);
  void write(std::string_view text) { write(std::as_bytes(std::span(text))); }
  // The file is on the disk when it returns: its contents, then its name.
  void commit();

 private:
  void give_name();

  std::string path_;
  std::string folder_;
  std::string temporary_;  // empty while the file has no name, and once it has its final one
  Fd fd_;
};

// The whole file at once.
void write_file(const std::string& path, std::string_view text);

// A UsageError that names the flag when no file can be made there, so that a run of an hour does not find out at its
// end. An empty path is no file, and accepted.
void check_can_write(const char* flag, const std::string& path);

}  // namespace lockstep
