// A file that appears whole or not at all.
#pragma once

#include <string>

#include "lockstep/base/fd.h"
#include "lockstep/base/types.h"

namespace lockstep::train {

// Writes to a temporary file in the same folder; commit() puts it in the place of `path`. Without commit() nothing is
// left. Throws SystemError.
class AtomicFile {
 public:
  explicit AtomicFile(const std::string& path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;

  void write(ConstBytes bytes);
  // On the disk when it returns: the file, then its name.
  void commit();

 private:
  std::string path_;
  std::string folder_;
  std::string temporary_;  // empty: gone
  Fd fd_;
};

}  // namespace lockstep::train
