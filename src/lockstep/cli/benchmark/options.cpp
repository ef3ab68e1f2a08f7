#include "lockstep/cli/benchmark/options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <set>
#include <utility>

#include "lockstep/base/environment.h"
#include "lockstep/base/suggest.h"
#include "lockstep/cli/flags.h"
#include "lockstep/collectives/plan.h"
#include "lockstep/error.h"

namespace lockstep::cli::benchmark {
namespace {

constexpr int kMaxRanks = 4096;
constexpr std::size_t kMaxSizes = 200;

constexpr const char* kExamples = R"(Examples:
  lockstep bench all_reduce                              2 ranks, some sizes from 8 bytes to 16 MB
  lockstep bench all_reduce --size 100M --ranks 4        one size, or --size 1K,1M; -n means iterations here
  lockstep bench all_reduce -b 8 -e 128M -f 2            nccl-tests' flags; --sweep says the same
  lockstep bench all_reduce -d all -o all --size 1M      every type, every reduction
  lockstep bench all_reduce --transport shm,tcp --algorithm ring,tree --buffer arena,private
                                                         every combination, interleaved round by round
  lockstep bench all_gather --size 64M --min-bw 5        exit code 3 below 5 GB/s of bus bandwidth
  lockstep bench p2p --sweep --json                      messages between pairs of ranks
  lockstep run -n 4 -- lockstep bench barrier            as ranks that another launcher starts: mpirun works too

Times a collective over its own ranks, checks its results, and says how near it comes to what the machine allows.

Usage: lockstep bench OP [flags]
  OP is one of all_reduce, reduce, broadcast, scatter, gather, all_gather, reduce_scatter, all_to_all, barrier, p2p

)";

constexpr const char* kNotes = R"(
Sizes take K, M and G as powers of 1024; 1 GB/s is 1e9 bytes a second.

size    The bytes of the whole buffer. For gather, all_gather, scatter and reduce_scatter this is the buffer with the
        parts of all ranks.
p50     Half of the calls took less. The calls run in a tight loop, with no barrier between them. Every call is timed
        on every rank, and the slowest rank counts; very short calls are timed several at a time, because reading the clock
        takes time too. p2p: one way, half a round trip.
p99     99 of 100 calls took less.
mean    The time of the whole loop on the slowest rank, divided by the calls: what nccl-tests calls time.
algbw   size / p50.
busbw   algbw times nccl-tests' factor: what each link carries if the op is done with the fewest bytes.
        2(p-1)/p all_reduce; (p-1)/p all_gather, reduce_scatter, gather, scatter, all_to_all; 1 for the others.
Avg bus bandwidth: the mean of busbw over all rows, as in nccl-tests.
#wrong  Number of wrong elements on all ranks. They are counted in a separate call, with inputs whose sums are exact.
        The timed calls work on zeros.
% limit What the machine allows, measured in the same rounds by min(ranks, cores) ranks at once, at the same size.
        shm: the op's own reads and writes with no synchronisation at all, or a non-temporal copy if that moves more.
        tcp: the speed of bare sockets that carry bytes in both directions at once; only for all_reduce, all_gather,
        reduce_scatter and all_to_all, and for sizes of 8M and more.
buffer  arena: memory that all ranks have mapped. private: any other. One hot buffer, in place where the op allows it;
        --rotate uses several in turn, so that each one is out of the cache when it is used.
algorithm  The one that ran. A star says that auto chose it.

What is the same in all rows stands in the first line of the table, and the rest in columns. JSON has everything.
Exit code 3 when a result is wrong or below --min-bw, 2 for wrong usage.
)";

// The sizes to measure, stepped through as in nccl-tests.
struct Steps {
  std::size_t min = 8;
  std::size_t max = std::size_t{16} << 20;
  int factor = 8;
  std::size_t bytes = 0;  // if above 0, added from size to size instead of multiplying by the factor
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

// Accepts the short names of nccl-tests as well.
std::string long_name(const std::string& name) {
  static constexpr std::pair<const char*, const char*> kShort[] = {
      {"float", "float32"}, {"double", "float64"}, {"half", "float16"}, {"prod", "product"}, {"avg", "mean"}};
  for (const auto& [brief, full] : kShort)
    if (name == brief) return full;
  return name;
}

std::vector<std::string> choices(const std::string& name, const std::string& value,
                                 const std::vector<std::string>& known) {
  auto items = split_list(name, value);
  for (const std::string& item : items)
    if (std::find(known.begin(), known.end(), item) == known.end())
      throw UsageError(fmt::format("{} is '{}'", name, item), fmt::format("one of {}", fmt::join(known, ", ")));
  return items;
}

int whole(const std::string& name, const std::string& value, int least, int most = std::numeric_limits<int>::max()) {
  return static_cast<int>(parse_int(name, value, least, most));
}

// Options while flags are read. The algorithms are kept as text, because "all" can be resolved only when the op is
// known, and the op may come later.
struct Draft {
  Options options;
  Steps steps;
  std::vector<std::string> algorithms = {"auto"};
};

template <typename T>
std::vector<T> all_or_one(const std::string& name, const std::string& value, std::span<const T> all,
                          T (*parse_one)(std::string_view, std::string_view)) {
  if (value == "all") return {all.begin(), all.end()};
  return {parse_one(name, long_name(value))};
}

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
      {{"-f", "--stepfactor"},
       "N",
       "factor from one size to the next; default 8",
       [&](S n, S v) { s.factor = whole(n, v, 2); }},
      {{"-i", "--stepbytes"},
       "BYTES",
       "bytes from one size to the next (instead of -f)",
       [&](S n, S v) {
         s.bytes = parse_bytes(n, v);
         if (s.bytes == 0) throw UsageError(fmt::format("{} is 0", n), "a number of bytes, or -f for a factor");
       }},
      {{"-n", "--iters"},
       "N",
       "timed calls of a round (on every other verb -n means ranks)",
       [&](S n, S v) { o.iterations = whole(n, v, 1); }},
      {{"--time"},
       "MS",
       "milliseconds of a round, filled with calls (instead of -n); default 30",
       [&](S n, S v) { o.round_seconds = parse_number(n, v, 0.01) / 1e3; }},
      {{"-w", "--warmup_iters"},
       "N",
       "untimed calls before each round; default 5",
       [&](S n, S v) { o.warmup = whole(n, v, 0); }},
      {{"--rounds"},
       "N",
       "number of rounds; every row is measured once in each round; default 5",
       [&](S n, S v) { o.rounds = whole(n, v, 1, 10000); }},
      {{"-c", "--check"},
       "0|1",
       "1 (default): check the results, 0: do not",
       [&](S n, S v) { o.check = whole(n, v, 0, 1) > 0; }},
      {{"-o", "--op"},
       "REDUCTION",
       "sum (default), mean, min, max, product, or all",
       [&](S n, S v) { o.reduce_ops = all_or_one(n, v, all_reduce_ops(), parse_reduce_op); }},
      {{"-d", "--datatype"},
       "TYPE",
       "float32 (default), float64, float16, bfloat16, int8, int32, int64, uint8, or all",
       [&](S n, S v) { o.dtypes = all_or_one(n, v, all_dtypes(), parse_dtype); }},
      {{"-r", "--root"},
       "RANK",
       "root of reduce, broadcast, scatter and gather; default 0",
       [&](S n, S v) { o.root = whole(n, v, 0, kMaxRanks - 1); }},
      {{"--transport"},
       "LIST",
       "auto (default), shm, tcp",
       [&](S n, S v) {
         o.transports.clear();
         for (S item : choices(n, v, kTransports.names())) o.transports.push_back(parse_transport(item));
       }},
      {{"--algorithm"},
       "LIST",
       "auto (default), a list such as direct,ring, or all (every algorithm of the operation)",
       [&](S n, S v) { d.algorithms = split_list(n, v); }},
      {{"--buffer"},
       "LIST",
       "arena (default over shm), private",
       [&](S n, S v) {
         o.buffers.clear();
         for (S item : choices(n, v, measure::kBuffers.names())) o.buffers.push_back(measure::kBuffers.parse(item));
       }},
      {{"--rotate"}, nullptr, "cold buffers instead of one hot one", [&](S, S) { o.rotate = true; }},
      {{"--no-limits"}, nullptr, "do not measure what the machine allows", [&](S, S) { o.limits = false; }},
      {{"--min-bw"},
       "GB/s",
       "exit code 3 when a row's busbw is below it",
       [&](S n, S v) { o.min_bandwidth = parse_number(n, v, 0); }},
      {{"--json"}, nullptr, "print the result as one JSON document", [&](S, S) { o.json = true; }},
      {{"--result"}, "FILE", "", [&](S, S v) { o.result = v; }},
      {{"--rows-fd"}, "N", "", [&](S n, S v) { o.rows_fd = whole(n, v, -1); }},
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

// Flags that would change nothing are refused, because a user who gives one expects an effect.
void check_flags(const Options& o, const std::set<std::string>& given) {
  const auto refuse = [&](std::initializer_list<const char*> flags, const std::string& why) {
    for (const char* flag : flags)
      if (given.contains(flag)) throw UsageError(fmt::format("{} {}", flag, why), fmt::format("without {}", flag));
  };
  if (given.contains("--size")) refuse({"--sweep", "-b", "-e", "-f", "-i"}, "chooses sizes, and so does --size");
  if (given.contains("-i")) refuse({"-f", "--sweep"}, "is a factor between sizes, and -i is a difference");
  if (given.contains("-n")) refuse({"--time"}, "says how long a round is, and so does -n");
  if (!o.reduces()) refuse({"-o"}, fmt::format("means nothing for {}, which reduces nothing", o.name()));
  if (!o.has_root()) refuse({"-r"}, fmt::format("means nothing for {}, which has no root", o.name()));
  if (o.op == Op::barrier)
    refuse({"--size", "--sweep", "-b", "-e", "-f", "-i", "-d", "--buffer", "--rotate"},
           "means nothing for barrier, which moves no data");
  const auto has = [](const auto& list, const auto& one) {
    return std::find(list.begin(), list.end(), one) != list.end();
  };
  if (has(o.buffers, measure::BufferKind::arena) && !has(o.transports, TransportKind::shm) &&
      !has(o.transports, TransportKind::automatic))
    throw UsageError("--buffer arena is memory that ranks share, and --transport tcp shares none",
                     "--transport shm, or --buffer private");
}

// Checks the sizes of --size, which are meant exactly. The sizes from -b to -e are rounded to whole elements, as in
// nccl-tests.
void check_sizes(const std::vector<std::size_t>& sizes, const std::vector<DType>& dtypes) {
  for (const std::size_t bytes : sizes)
    for (const DType dtype : dtypes) {
      const std::size_t element = bytes_per_element(dtype);
      if (bytes % element == 0) continue;
      throw UsageError(fmt::format("--size {} is not a whole number of {} elements, which have {} bytes", bytes,
                                   name_of(dtype), element),
                       fmt::format("--size {}", (bytes / element + 1) * element));
    }
}

}  // namespace

Options parse(std::span<const std::string> arguments) {
  Draft draft;
  const auto known = flags(draft);
  const auto words = read_flags(known, "bench", arguments);
  Options& options = draft.options;
  options.op = op_of(words);
  check_flags(options, given_flags(known, "bench", arguments));
  options.algorithms = algorithms_for(options, draft.algorithms);
  check_sizes(draft.steps.only, options.dtypes);
  options.sizes = options.op == Op::barrier ? std::vector<std::size_t>{0} : draft.steps.sizes();
  const bool only_mean = options.reduce_ops == std::vector<ReduceOp>{ReduceOp::mean};
  if (only_mean && options.dtypes.size() == 1 && is_integer(options.dtypes[0]))
    throw UsageError(fmt::format("there is no mean of {}", name_of(options.dtypes[0])), "-d float32");
  return std::move(options);
}

void check_world(const Options& options, int ranks) {
  if (options.root >= ranks)
    throw UsageError(fmt::format("--root {} is outside a world of {}", options.root, ranks),
                     fmt::format("--root 0 to {}", ranks - 1));
  if (!options.op && ranks == 1)
    throw UsageError("p2p is a message between two ranks, and there is one rank", "--ranks 2");
}

std::string help() {
  Draft draft;
  return kExamples + describe_flags(flags(draft)) + kNotes;
}

}  // namespace lockstep::cli::benchmark
