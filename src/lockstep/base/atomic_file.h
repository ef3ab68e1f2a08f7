// Files that appear under their name complete, or not at all.
//
// If the file system allows it, the bytes go to a file without a name (O_TMPFILE), which the kernel removes by itself
// if the process ends before commit(). Otherwise they go to a temporary file in the same folder, which stays behind
// only if the process is killed.
#pragma once

#include <string>
#include <string_view>

#include "lockstep/base/fd.h"
#include "lockstep/types.h"

namespace lockstep {

// A file that is written in pieces and then put in its place by commit(). A file that was at `path` before stays as it
// is until commit(). Without commit() nothing changes there. Used by one thread. Throws SystemError if the file cannot
// be written.
class AtomicFile {
 public:
  // Throws UsageError if `path` exists and is not a regular file. A symbolic link is followed, except one that another
  // user made in a folder that everybody can write to: that is a UsageError, too.
  explicit AtomicFile(const std::string& path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;

  void write(ConstBytes bytes);
  void write(std::string_view text) { write(std::as_bytes(std::span(text))); }
  // Puts the file in its place. When it returns, the contents and then the name have been written to the disk.
  void commit();

 private:
  void give_name();

  std::string path_;
  std::string folder_;
  std::string temporary_;  // the temporary name; empty while the file has no name, and after commit()
  Fd fd_;
};

// Writes a whole file with AtomicFile.
void write_file(const std::string& path, std::string_view text);

// Throws a UsageError that names the flag if no file can be made at `path`, so that a run of one hour does not find
// that out only at its end. An empty path means that no file is wanted, and is accepted.
void check_can_write(const char* flag, const std::string& path);

}  // namespace lockstep
