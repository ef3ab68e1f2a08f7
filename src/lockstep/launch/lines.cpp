#include "lockstep/launch/lines.h"

#include <algorithm>

namespace lockstep::launch {
namespace {

constexpr std::size_t kRememberedBytes = 400;  // of a line; enough to know it by

}  // namespace

void LinePrefixer::emit(std::string_view line, std::string& out) {
  out += prefix_;
  out += line;
  out += '\n';
  if (line.find_first_not_of(" \t\r") == std::string_view::npos) return;
  if (last_.size() == kRemembered) last_.pop_front();
  last_.emplace_back(line.substr(0, kRememberedBytes));
}

std::string LinePrefixer::feed(std::string_view bytes) {
  std::string out;
  while (!bytes.empty()) {
    const std::size_t end = std::min(bytes.find('\n'), bytes.size());
    // A full piece waits for the byte after it: a line of just `longest_` bytes stays one line.
    const std::size_t taken = std::min(end, longest_ - partial_.size());
    partial_ += bytes.substr(0, taken);
    bytes.remove_prefix(taken);
    if (bytes.empty()) break;
    if (taken == end) bytes.remove_prefix(1);  // the newline
    emit(partial_, out);
    partial_.clear();
  }
  return out;
}

std::string LinePrefixer::finish() {
  std::string out;
  if (!partial_.empty()) emit(partial_, out);
  partial_.clear();
  return out;
}

}  // namespace lockstep::launch
