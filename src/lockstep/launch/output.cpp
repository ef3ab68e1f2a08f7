#include "lockstep/launch/output.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>

#include "lockstep/base/environment.h"
#include "lockstep/error.h"

namespace lockstep::launch {
namespace {

constexpr std::array kConsole = {STDOUT_FILENO, STDERR_FILENO};
constexpr std::array kBit = {kStdout, kStderr};
constexpr std::array kSuffix = {"stdout", "stderr"};

// The text before each line of a rank. Neighbouring ranks have different colours; red is reserved for failures.
std::string prefix(Rank rank, bool colour) {
  constexpr std::array kColours = {36, 33, 32, 35, 34, 96, 93, 92, 95, 94};
  if (!colour) return fmt::format("[rank {}] ", rank);
  return fmt::format("\x1b[{}m[rank {}]\x1b[0m ", kColours[index_of(rank) % kColours.size()], rank);
}

Fd create(const std::string& path) {
  Fd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  if (!fd)
    throw UsageError(fmt::format("cannot write {}: {}", path, std::generic_category().message(errno)),
                     "a `log_dir` that this user may write to");
  return fd;
}

}  // namespace

Output::Output(const Options& options) {
  for (std::size_t i = 0; i < 2; ++i) colour_[i] = ::isatty(kConsole[i]) == 1 && !env("NO_COLOR");
  if (options.to_file != kNeither) {
    std::error_code error;
    std::filesystem::create_directories(options.log_dir, error);
    if (error)
      throw UsageError(fmt::format("cannot make the folder {}: {}", options.log_dir, error.message()),
                       "another `log_dir`");
  }
  for (Rank rank = 0; rank < options.ranks; ++rank) {
    auto& streams = streams_.emplace_back();
    for (std::size_t i = 0; i < 2; ++i) {
      Fd file;
      if ((options.to_file & kBit[i]) != 0)
        file = create(fmt::format("{}/rank_{}.{}", options.log_dir, rank, kSuffix[i]));
      const int console = (options.to_console & kBit[i]) != 0 ? kConsole[i] : -1;
      const std::string before = prefix(rank, colour_[i]);
      streams[i] = std::make_unique<Stream>(Stream{Fd(), std::move(file), console, before, LinePrefixer(before), rank});
    }
  }
}

void Output::attach(Rank rank, Fd out, Fd err) {
  for (const Fd* pipe : {&out, &err}) ::fcntl(pipe->get(), F_SETFL, O_NONBLOCK);
  auto& streams = streams_[index_of(rank)];
  streams[0]->pipe = std::move(out);
  streams[1]->pipe = std::move(err);
}

void Output::add_to(std::vector<pollfd>& entries) const {
  entries.push_back({writer_.event_fd(), POLLIN, 0});
  if (writer_.full()) return;
  for (const auto& streams : streams_)
    for (const auto& stream : streams)
      if (stream->pipe) entries.push_back({stream->pipe.get(), POLLIN, 0});
}

void Output::pump(bool no_writers) {
  writer_.acknowledge();
  for (auto& streams : streams_)
    for (auto& stream : streams)
      if (stream->pipe && !writer_.full()) read(*stream, no_writers);
  if (std::string lines = errors_.due(Clock::now(), drained()); !lines.empty())
    writer_.push(STDERR_FILENO, std::move(lines));
}

void Output::show(const Stream& stream, std::string lines) {
  if (stream.console == STDERR_FILENO) lines = errors_.take(stream.rank, stream.prefix, lines, Clock::now());
  if (stream.console >= 0) writer_.push(stream.console, std::move(lines));
}

void Output::read(Stream& stream, bool no_writers) {
  static thread_local std::array<char, 64 * 1024> buffer;
  const ssize_t got = ::read(stream.pipe.get(), buffer.data(), buffer.size());
  if (got > 0) {
    const std::string_view bytes(buffer.data(), static_cast<std::size_t>(got));
    if (stream.file) writer_.push(stream.file.get(), std::string(bytes));
    show(stream, stream.lines.feed(bytes));
  } else if (got == 0 || (errno == EAGAIN && no_writers) || (errno != EAGAIN && errno != EINTR)) {
    close(stream);
  }
}

void Output::close(Stream& stream) {
  stream.pipe.reset();
  show(stream, stream.lines.finish());
}

void Output::say(const std::string& text) { writer_.push(STDERR_FILENO, text + "\n"); }

bool Output::drained() const {
  return std::none_of(streams_.begin(), streams_.end(), [](const auto& s) { return s[0]->pipe || s[1]->pipe; });
}

bool Output::reader_left() const {
  const auto failures = writer_.failures();
  return std::any_of(kConsole.begin(), kConsole.end(), [&](int fd) {
    const auto found = failures.find(fd);
    return found != failures.end() && found->second == EPIPE;
  });
}

std::string Output::write_failure() const {
  const auto failures = writer_.failures();
  if (failures.empty()) return "";
  const auto& [fd, code] = *failures.begin();
  const char* name = fd == STDOUT_FILENO ? "stdout" : fd == STDERR_FILENO ? "stderr" : "a log file";
  return fmt::format("{} could not be written: {}", name, std::generic_category().message(code));
}

std::vector<std::string> Output::last_words(Rank rank) const { return streams_[index_of(rank)][1]->lines.last_lines(); }

}  // namespace lockstep::launch
