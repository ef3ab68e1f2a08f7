#include "lockstep/train/memory.h"

#include <fstream>
#include <string>

namespace lockstep::train {
namespace {

// The value of a line "Name:   1234 kB"; 0 if the kernel does not report it.
std::size_t kilobytes(const char* file, const std::string& name) {
  std::ifstream lines(file);
  for (std::string word; lines >> word;) {
    std::size_t value = 0;
    if (word == name && lines >> value) return value;
  }
  return 0;
}

}  // namespace

std::size_t peak_bytes() { return 1024 * kilobytes("/proc/self/status", "VmHWM:"); }
std::size_t pss_bytes() { return 1024 * kilobytes("/proc/self/smaps_rollup", "Pss:"); }

}  // namespace lockstep::train
