// Turns a stream of bytes into whole lines.
#pragma once

#include <deque>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::launch {

// Cuts one stream into lines and puts a prefix before each, so that the lines of several ranks can share a terminal. A
// line ends with a newline, a carriage return (as in progress bars) or both. A line longer than `longest` bytes is cut
// into pieces, each of which becomes a line of its own, so memory stays bounded whatever arrives. It also remembers the
// last few lines that are not blank, without their prefix. Used by one thread.
class LinePrefixer {
 public:
  static constexpr std::size_t kLongest = 64 * 1024;
  static constexpr std::size_t kRemembered = 5;

  explicit LinePrefixer(std::string prefix, std::size_t longest = kLongest)
      : prefix_(std::move(prefix)), longest_(longest) {}

  // The lines that `bytes` completes, ready to print; empty if it completes none.
  std::string feed(std::string_view bytes);
  // Called at the end of the stream. Returns the rest that had no newline, with a newline.
  std::string finish();

  std::vector<std::string> last_lines() const { return {last_.begin(), last_.end()}; }

 private:
  void emit(std::string_view line, std::string& out);

  std::string prefix_;
  std::size_t longest_;
  std::string partial_;        // the beginning of an incomplete line, at most `longest_` bytes
  bool after_return_ = false;  // a carriage return has just ended a line
  std::deque<std::string> last_;
};

}  // namespace lockstep::launch
