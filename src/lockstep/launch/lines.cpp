#include "lockstep/launch/lines.h"

#include <algorithm>
#include <utility>

namespace lockstep::launch {
namespace {

constexpr std::size_t kRememberedBytes = 400;  // of each line; enough to recognise it

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
    if (std::exchange(after_return_, false) && bytes.front() == '\n') {  // "\r\n" ends one line, not two
      bytes.remove_prefix(1);
      continue;
    }
    const std::size_t end = std::min(bytes.find_first_of("\r\n"), bytes.size());
    // A full piece waits for the byte after it, so that a line of exactly `longest_` bytes stays one line.
    const std::size_t taken = std::min(end, longest_ - partial_.size());
    partial_ += bytes.substr(0, taken);
    bytes.remove_prefix(taken);
    if (bytes.empty()) break;
    const bool returns = taken == end && bytes.front() == '\r';
    if (taken == end) bytes.remove_prefix(1);  // the newline or carriage return
    // A progress bar begins or ends each update with a carriage return, so the text between two of them is a line of
    // its own. If there is no text, there is no line.
    if (!returns || !partial_.empty()) {
      emit(partial_, out);
      after_return_ = returns;
    }
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
