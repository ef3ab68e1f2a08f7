#include "lockstep/cli/benchmark/options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "lockstep/base/environment.h"
#include "lockstep/base/error.h"
#include "lockstep/base/suggest.h"
#include "lockstep/cli/flags.h"
#include "lockstep/collectives/plan.h"

namespace lockstep::cli::benchmark {
namespace {

constexpr int kMaxRanks = 4096;
constexpr std::size_t kMaxSizes = 200;

constexpr const char* kExamples = R"(Examples:
  lockstep bench all_reduce                              2 ranks, some sizes from 8 bytes to 16 MB
  lockstep bench all_reduce --size 100M --ranks 4        one size, or --size 1K,1M
  lockstep bench all_reduce -b 8 -e 128M -f 2            nccl-tests' flags; --sweep says the same
  lockstep bench all_reduce --transport shm,tcp --algorithm ring,tree --buffer arena,private
                                                         every combination, interleaved round by round
  lockstep bench all_gather --size 64M --min-bw 5        exit code 3 below 5 GB/s of bus bandwidth
  lockstep bench p2p --sweep --json                      messages between pairs of ranks
  lockstep run -n 4 -- lockstep bench barrier            as ranks that somebody else starts: mpirun works too

Times a collective over its own ranks, checks its results, and says how near it comes to what the machine allows.

Usage: lockstep bench OP [flags]
  OP is one of all_reduce, reduce, broadcast, scatter, gather, all_gather, reduce_scatter, all_to_all, barrier, p2p

)";

constexpr const char* kNotes = R"(
Sizes take K, M and G as powers of 1024; 1 GB/s is 1e9 bytes a second.

size    The whole buffer: of gather, all_gather, scatter and reduce_scatter that of all ranks together.
time    A tight loop of calls, no barrier between them. Every call is timed on every rank, and the slowest rank counts;
        calls so short that reading the clock would show are timed some at a time. p2p: one way, half a round trip.
        JSON has the mean of the loop too: its time on the slowest rank, divided by the calls.
algbw   size / p50.
busbw   algbw times nccl-tests' factor: what each link carries if the op is done with the fewest bytes.
        2(p-1)/p all_reduce; (p-1)/p all_gather, reduce_scatter, gather, scatter, all_to_all; 1 for the others.
#wrong  Elements that differ from what they must be, over all ranks, in a call of its own whose inputs make every
        sum exact. The timed calls work on zeros, which stay what they are.
% limit What the machine allows, measured in the same rounds by min(ranks, cores) ranks at once, at the same size.
        shm: the op's own reads and writes with no synchronisation at all, or a non-temporal copy if that moves more.
        tcp: bytes that go both ways at once through bare sockets; for ops whose bytes do, from 8M on.
buffer  arena: memory that all ranks have mapped. private: any other. One hot buffer, in place where the op allows it;
        --rotate goes through so many that each is cold when its turn comes.

Exit code 3 when a result is wrong or below --min-bw, 2 for wrong usage.
)";

// Sizes as nccl-tests steps through them.
struct Steps {
  std::size_t min = 8;
  std::size_t max = std::size_t{16} << 20;
  int factor = 8;
  std::size_t bytes = 0;  // added instead of multiplied
  std::vector<std::size_t> only;

  std::vector<std::size_t> sizes() const {
    if (!only.empty()) return only;
    if (min > max)
      throw UsageError(fmt::format("-b {} is more than -e {}", min, max), fmt::format("-b {} -e {}", max, min));
    std::vector<std::size_t> found;
    for (std::size_t size = min; size <= max; size = bytes > 0 ? size + bytes : size * static_cast<unsigned>(factor)) {
      found.push_back(size);
      if (found.size() > kMaxSizes)
        throw UsageError(fmt::format("more than {} sizes", kMaxSizes), "a larger -f or -i, or a narrower range");
      if (size == 0 && bytes == 0) break;
    }
    return found;
  }
};

// nccl-tests' short names are welcome.
std::string long_name(const std::string& name) {
  static constexpr std::pair<const char*, const char*> kShort[] = {
      {"float", "float32"}, {"double", "float64"}, {"half", "float16"}, {"prod", "product"}, {"avg", "mean"}};
  for (const auto& [brief, full] : kShort)
    if (name == brief) return full;
  return name;
}

std::vector<std::string> choices(const std::string& name, const std::string& value,
                                 std::initializer_list<std::string_view> known) {
  auto items = split_list(name, value);
  for (const std::string& item : items)
    if (std::find(known.begin(), known.end(), item) == known.end())
      throw UsageError(fmt::format("{} is '{}'", name, item), fmt::format("one of {}", fmt::join(known, ", ")));
  return items;
}

int whole(const std::string& name, const std::string& value, int least, int most = std::numeric_limits<int>::max()) {
  return static_cast<int>(parse_int(name, value, least, most));
}

// "all" needs to know the op, which may come later.
struct Draft {
  Options options;
  Steps steps;
  std::vector<std::string> algorithms = {"auto"};
};

std::vector<Flag> flags(Draft& d) {
  using S = const std::string&;
  Options& o = d.options;
  Steps& s = d.steps;
  return {
      {{"--ranks"}, "N", "ranks to start; default 2", [&](S n, S v) { o.ranks = whole(n, v, 1, kMaxRanks); }},
      {{"--size"},
       "LIST",
       "just these sizes",
       [&](S n, S v) {
         s.only.clear();
         for (S item : split_list(n, v)) s.only.push_back(parse_bytes(n, item));
       }},
      {{"--sweep"},
       nullptr,
       "8 bytes to 128 MB, doubling",
       [&](S, S) {
         s = Steps();
         s.max = std::size_t{128} << 20;
         s.factor = 2;
       }},
      {{"-b", "--minbytes"}, "BYTES", "from this size; default 8", [&](S n, S v) { s.min = parse_bytes(n, v); }},
      {{"-e", "--maxbytes"}, "BYTES", "to this size; default 16M", [&](S n, S v) { s.max = parse_bytes(n, v); }},
      {{"-f", "--stepfactor"}, "N", "times so much each step; default 8", [&](S n, S v) { s.factor = whole(n, v, 2); }},
      {{"-i", "--stepbytes"}, "BYTES", "or so much more each step", [&](S n, S v) { s.bytes = parse_bytes(n, v); }},
      {{"-n", "--iters"}, "N", "timed calls of a round", [&](S n, S v) { o.iterations = whole(n, v, 1); }},
      {{"--time"},
       "MS",
       "or calls that fill so many milliseconds of a round; default 30",
       [&](S n, S v) { o.round_seconds = parse_number(n, v, 0.01) / 1e3; }},
      {{"-w", "--warmup_iters"}, "N", "calls before them; default 5", [&](S n, S v) { o.warmup = whole(n, v, 0); }},
      {{"--rounds"},
       "N",
       "rounds; in each every row has its turn; default 5",
       [&](S n, S v) { o.rounds = whole(n, v, 1, 10000); }},
      {{"-c", "--check"}, "N", "0: do not check the results", [&](S n, S v) { o.check = whole(n, v, 0) > 0; }},
      {{"-o", "--op"},
       "OP",
       "sum (default), mean, min, max, product",
       [&](S n, S v) { o.reduce_op = parse_reduce_op(n, long_name(v)); }},
      {{"-d", "--datatype"},
       "TYPE",
       "float32 (default), float64, float16, bfloat16, int8, int32, int64, uint8",
       [&](S n, S v) { o.dtype = parse_dtype(n, long_name(v)); }},
      {{"-r", "--root"},
       "RANK",
       "of reduce, broadcast, scatter and gather; default 0",
       [&](S n, S v) { o.root = whole(n, v, 0, kMaxRanks - 1); }},
      {{"--transport"},
       "LIST",
       "auto (default), shm, tcp",
       [&](S n, S v) {
         o.transports = choices(n, v, {"auto", "shm", "tcp"});
       }},
      {{"--algorithm"},
       "LIST",
       "auto (default), direct, ring ... or all that the op has",
       [&](S n, S v) { d.algorithms = split_list(n, v); }},
      {{"--buffer"},
       "LIST",
       "arena (default over shm), private",
       [&](S n, S v) {
         o.buffers = choices(n, v, {"arena", "private"});
       }},
      {{"--rotate"}, nullptr, "cold buffers instead of one hot one", [&](S, S) { o.rotate = true; }},
      {{"--no-limits"}, nullptr, "do not measure what the machine allows", [&](S, S) { o.limits = false; }},
      {{"--min-bw"},
       "GB/s",
       "exit code 3 when a row's busbw is below it",
       [&](S n, S v) { o.min_bandwidth = parse_number(n, v, 0); }},
      {{"--json"}, nullptr, "one document on stdout", [&](S, S) { o.json = true; }},
      {{"--result"}, "FILE", "", [&](S, S v) { o.result = v; }},
  };
}

std::optional<Op> op_of(const std::vector<std::string>& words) {
  std::vector<std::string> known{"p2p"};
  for (const Op op : all_ops()) known.emplace_back(name_of(op));
  if (words.empty()) throw UsageError("no op to measure", "lockstep bench all_reduce");
  if (words.size() > 1) throw UsageError(fmt::format("'{}' is one word too many", words[1]), "lockstep bench --help");
  if (words[0] == "p2p") return std::nullopt;
  if (std::find(known.begin(), known.end(), words[0]) != known.end()) return parse_op("bench", words[0]);
  throw UsageError(fmt::format("there is no op '{}'", words[0]),
                   closest(words[0], known).value_or(fmt::format("one of {}", fmt::join(known, ", "))));
}

std::vector<Algorithm> algorithms_for(const Options& options, const std::vector<std::string>& names) {
  if (!options.op) {
    if (names != std::vector<std::string>{"auto"}) throw UsageError("p2p has no algorithms", "no --algorithm");
    return {Algorithm::automatic};
  }
  std::vector<Algorithm> known = collectives::algorithms_of(*options.op);
  known.push_back(Algorithm::direct);
  if (names == std::vector<std::string>{"all"}) return known;
  known.push_back(Algorithm::automatic);
  std::vector<std::string> spellings{"all"};
  for (const Algorithm algorithm : known) spellings.emplace_back(name_of(algorithm));
  std::vector<Algorithm> found;
  for (const std::string& name : names) {
    const auto place = std::find(spellings.begin() + 1, spellings.end(), name);
    if (place == spellings.end())
      throw UsageError(fmt::format("{} has no algorithm '{}'", options.name(), name),
                       closest(name, spellings).value_or(fmt::format("one of {}", fmt::join(spellings, ", "))));
    found.push_back(known[static_cast<std::size_t>(place - spellings.begin() - 1)]);
  }
  return found;
}

}  // namespace

Options parse(std::span<const std::string> arguments) {
  Draft draft;
  const auto words = read_flags(flags(draft), "bench", arguments);
  Options& options = draft.options;
  options.op = op_of(words);
  options.algorithms = algorithms_for(options, draft.algorithms);
  options.sizes = options.op == Op::barrier ? std::vector<std::size_t>{0} : draft.steps.sizes();
  const bool reduces = options.op == Op::all_reduce || options.op == Op::reduce || options.op == Op::reduce_scatter;
  if (reduces && options.reduce_op == ReduceOp::mean && is_integer(options.dtype))
    throw UsageError(fmt::format("there is no mean of {}", name_of(options.dtype)), "-d float32");
  return std::move(options);
}

std::string help() {
  Draft draft;
  return kExamples + describe_flags(flags(draft)) + kNotes;
}

}  // namespace lockstep::cli::benchmark
