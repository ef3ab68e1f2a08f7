// Carries what the ranks write to where people read it: the console, with a prefix, and log files, as it is.
//
// Used by the watcher's thread alone. Reading is back-pressured by the Writer; nothing here blocks.
#pragma once

#include <poll.h>

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/base/fd.h"
#include "lockstep/base/types.h"
#include "lockstep/launch/lines.h"
#include "lockstep/launch/options.h"
#include "lockstep/launch/shared_errors.h"
#include "lockstep/launch/writer.h"

namespace lockstep::launch {

class Output {
 public:
  // Makes the log files, if any; throws UsageError when it can't.
  explicit Output(const Options& options);

  // The pipes that carry a rank's stdout and stderr.
  void attach(Rank rank, Fd out, Fd err);

  // Appends what to poll: the writer's event first, then every pipe that may be read now.
  void add_to(std::vector<pollfd>& entries) const;
  // Reads the pipes once. `no_writers`: the ranks are gone, so a pipe with nothing in it is done.
  void pump(bool no_writers);

  // A line of the launcher's own, on stderr, in order with what ranks wrote before.
  void say(const std::string& text);

  bool holds_errors() const { return !errors_.empty(); }  // pump() again soon
  bool drained() const;                                   // every pipe is read to its end
  bool flushed() const { return writer_.idle(); }         // and everything is written
  bool reader_left() const;           // our own stdout or stderr is a pipe that nobody reads any more
  std::string write_failure() const;  // what could not be written, or empty
  std::vector<std::string> last_words(Rank rank) const;  // the last lines of its stderr
  bool coloured() const { return colour_[1]; }           // stderr shows colours

 private:
  struct Stream {
    Fd pipe;      // non-blocking; empty once at its end
    Fd file;      // empty: no log file
    int console;  // descriptor, or -1
    std::string prefix;
    LinePrefixer lines;
    Rank rank;
  };
  void read(Stream& stream, bool no_writers);
  void close(Stream& stream);
  void show(const Stream& stream, std::string lines);

  std::array<bool, 2> colour_;                                   // of stdout and of stderr
  std::vector<std::array<std::unique_ptr<Stream>, 2>> streams_;  // by rank: stdout, stderr
  SharedErrors errors_;                                          // held back from the console's stderr
  Writer writer_;                                                // after the files: it writes to them until it is gone
};

}  // namespace lockstep::launch
