// Carries the output of the ranks to the console, with a prefix before each line, and to log files, unchanged.
//
// Used by the supervisor's thread alone. Nothing here blocks. While the Writer is full, the pipes of the ranks are not
// read, so a slow reader slows down the ranks.
#pragma once

#include <poll.h>

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/base/fd.h"
#include "lockstep/launch/lines.h"
#include "lockstep/launch/options.h"
#include "lockstep/launch/shared_errors.h"
#include "lockstep/launch/writer.h"
#include "lockstep/types.h"

namespace lockstep::launch {

class Output {
 public:
  // Creates the log files, if any. Throws UsageError if that fails.
  explicit Output(const Options& options);

  // Takes over the pipes that carry a rank's stdout and stderr.
  void attach(Rank rank, Fd out, Fd err);

  // Appends the descriptors to poll: first the writer's event, then every pipe that may be read now.
  void add_to(std::vector<pollfd>& entries) const;
  // Reads each pipe once. `no_writers` means that the ranks are gone, so a pipe without data is at its end.
  void pump(bool no_writers);

  // Writes a line of the launcher itself to stderr, after everything that was read from the ranks before.
  void say(const std::string& text);

  Clock::time_point next_pump() const { return errors_.next_due(); }  // call pump() then, also without new output
  bool drained() const;                                               // every pipe has been read to its end
  bool flushed() const { return writer_.idle(); }                     // everything that was read has been written
  bool reader_left() const;           // our own stdout or stderr is a pipe that nobody reads any more
  std::string write_failure() const;  // what could not be written; empty if nothing failed
  std::vector<std::string> last_words(Rank rank) const;  // the last lines of a rank's stderr
  bool coloured() const { return colour_[1]; }           // stderr shows colours

 private:
  struct Stream {
    Fd pipe;      // non-blocking; empty once it is read to its end
    Fd file;      // the log file; empty if there is none
    int console;  // the descriptor of the console, or -1 for none
    std::string prefix;
    LinePrefixer lines;
    Rank rank;
  };
  void read(Stream& stream, bool no_writers);
  void close(Stream& stream);
  void show(const Stream& stream, std::string lines);

  std::array<bool, 2> colour_;                                   // whether stdout and stderr show colours
  std::vector<std::array<std::unique_ptr<Stream>, 2>> streams_;  // by rank; stdout and stderr
  SharedErrors errors_;                                          // error lines that are held back from the console
  Writer writer_;  // declared last, because it writes to the files above until it is destroyed
};

}  // namespace lockstep::launch
