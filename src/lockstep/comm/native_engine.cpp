#include "lockstep/comm/native_engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "lockstep/base/log.h"
#include "lockstep/collectives/choose.h"
#include "lockstep/collectives/run.h"
#include "lockstep/rendezvous/meeting.h"
#include "lockstep/transport.h"
#include "lockstep/transport/shm/share.h"
#include "lockstep/world.h"

namespace lockstep::comm {
namespace {

using collectives::Call;
using collectives::Fingerprint;

// A tag consists of the communicator's number and, in its lower half, one of the user's tags, kTraceTag, or one of
// these.
constexpr Tag kCollective = 0xffff;
constexpr Tag kPosition = 0xfffe;
constexpr Tag kSetUp = 0xfffd;

constexpr std::size_t kMostBytes = std::size_t{1} << 40;  // of a buffer in the arena; the limit comes from Location

// A larger all-reduce by messages is made in slices of this size if all ranks are on one host, whose cores then copy
// what is sent: a slice stays in the caches. 64 MB over tcp take 14 ms instead of 15 on 2 ranks, and 44 instead of 50
// on 4. Between hosts, a slice would only add latency.
constexpr std::size_t kSlice = std::size_t{4} << 20;

Tag tag_of(std::uint16_t context, Tag tag) { return static_cast<Tag>(context) << 16 | tag; }

// What must be the same on all ranks. All ranks use the values of the first rank.
struct Agreed {
  Algorithm algorithm;
  std::size_t small_bytes;
  std::size_t segment_bytes;
  bool trace;
  bool fetch;  // ranks copy from each other's memory, if the kernel allows it
};

bool agree(Options& options, const collectives::Group& group, Tag tag, bool fetch) {
  Agreed agreed{options.algorithm, options.small_bytes, options.segment_bytes, !options.trace_file.empty(), fetch};
  if (group.me == 0) {
    for (Rank rank = 1; rank < group.size(); ++rank)
      group.transport->send(group.world[index_of(rank)], tag, bytes_of(agreed));
  } else {
    group.transport->recv(group.world[0], tag, writable_bytes_of(agreed));
  }
  options.algorithm = agreed.algorithm;
  options.small_bytes = agreed.small_bytes;
  options.segment_bytes = agreed.segment_bytes;
  if (!agreed.trace) options.trace_file.clear();
  // The name of a trace that rank 0 alone asked for is known only there; the others use this one for their own files.
  if (agreed.trace && options.trace_file.empty()) options.trace_file = "lockstep-trace.json";
  // A segment must hold at least one cache line for every rank.
  const auto least = static_cast<std::size_t>(group.size()) * 64;
  options.segment_bytes = std::max(options.segment_bytes / 64 * 64, least);
  options.small_bytes = std::max<std::size_t>(options.small_bytes / 64 * 64, 64);
  return agreed.fetch;
}

// The last collective of a rank that leaves. The fingerprint also contains a hash of all collectives before it.
struct Last {
  std::int64_t rank = 0;
  Fingerprint call;  // empty if there was none
  std::string text() const { return call.empty() ? "none at all" : call.text(); }
};

// True if the operation can end only after every rank has begun it.
bool hears_from_all(Op op) { return op != Op::reduce && op != Op::broadcast && op != Op::scatter && op != Op::gather; }

std::shared_ptr<Bytes> plain_memory(std::size_t bytes) {
  auto memory = std::shared_ptr<std::byte>(
      static_cast<std::byte*>(::operator new (std::max<std::size_t>(bytes, 1), std::align_val_t{64})),
      [](std::byte* old) { ::operator delete (old, std::align_val_t{64}); });
  std::fill_n(memory.get(), bytes, std::byte{0});
  return {new Bytes(memory.get(), bytes), [memory](Bytes* view) { delete view; }};
}

}  // namespace

NativeEngine::NativeEngine(World& world, std::vector<Rank> group, std::uint16_t context, const Options& options)
    : world_(world),
      options_(options),
      context_(context),
      group_{.transport = group.size() > 1 ? &world.transport() : nullptr,
             .world = std::move(group),
             .me = 0,
             .tag = tag_of(context, kCollective),
             .on_delay = {},
             .work = {},
             .arrivals = {}},
      stalls_((group_.me = static_cast<Rank>(std::find(group_.world.begin(), group_.world.end(), world.rank()) -
                                             group_.world.begin()),
               group_),
              flights_, tag_of(context, kPosition), options_) {
  group_.on_delay = [this](std::span<const Rank> awaited) { stalls_.on_delay(awaited); };
  if (group_.size() == 1) return;
  const Tag set_up = tag_of(context, kSetUp);
  const bool fetch = agree(options_, group_, set_up, world.options().shm_copy == transport::ShmCopy::automatic);
  if (group_.transport->kind() != TransportKind::shm) return;
  const auto region = transport::shm::share_region(
      world.meeting(), *group_.transport, group_.world, set_up,
      collectives::Board::bytes_needed(group_.size(), options_.small_bytes, options_.segment_bytes),
      world.options().shm_dir);
  direct_ = std::make_unique<collectives::Direct>(
      collectives::Board(region, group_.me, group_.size(), options_.small_bytes, options_.segment_bytes), group_);
  if (!fetch) return;
  std::vector<transport::shm::PeerMemory> memories;
  for (const Rank rank : group_.world)
    memories.emplace_back(transport::PeerProcess::of(world.meeting().peers()[index_of(rank)]));
  direct_->try_memories(std::move(memories));
}

void NativeEngine::leave() noexcept {
  // Nothing is compared while an exception unwinds the stack, or after an error that the program has caught: then the
  // other ranks are told the reason for leaving instead.
  if (group_.size() == 1 || failure_ || std::uncaught_exceptions() > 0 || birthplace_.is_elsewhere() ||
      group_.transport->ended())
    return;
  stalls_.say_farewell(sequence_);
  const Last mine{world_.rank(), flights_.find(sequence_).value_or(Fingerprint{})};
  const auto first =
      world_.meeting().compare(fmt::format("last/{}/{}", context_, group_.world[0]),
                               std::string(reinterpret_cast<const char*>(&mine), sizeof mine), group_.size());
  if (!first || first->size() != sizeof(Last)) return;
  Last other;
  std::memcpy(&other, first->data(), sizeof other);
  if (other.call == mine.call) return;
  const std::string text = fmt::format("ranks disagree: the last collective of rank {} was {}, that of rank {} was {}",
                                       mine.rank, mine.text(), other.rank, other.text());
  const char* const hint = "the same calls in the same order on all ranks";
  world_.note_lost(
      Mismatch(dumped(ErrorFacts{.message = text, .peer = static_cast<Rank>(other.rank), .hint = hint}, text)).what());
}

Algorithm NativeEngine::choice(Op op, std::size_t bytes) const {
  if (const Algorithm set = default_for(op); set != Algorithm::automatic) return set;
  return collectives::choose(op, bytes, group_.size(), direct_ != nullptr);
}

// The algorithm of the communicator's options, if the op has it: there is no ring for a barrier, for example.
Algorithm NativeEngine::default_for(Op op) const {
  const auto own = collectives::algorithms_of(op);
  const bool has =
      options_.algorithm == Algorithm::direct || std::find(own.begin(), own.end(), options_.algorithm) != own.end();
  return has ? options_.algorithm : Algorithm::automatic;
}

bool NativeEngine::in_arena(const void* data) const {
  return direct_ && direct_->arena().find(data, 0) != collectives::kPrivate;
}

std::vector<std::byte*> NativeEngine::on_all_ranks(const void* data, std::size_t bytes) const {
  if (!direct_) return {};
  const collectives::Location location = direct_->arena().find(data, bytes);
  if (location == collectives::kPrivate) return {};
  std::vector<std::byte*> places;
  for (Rank rank = 0; rank < group_.size(); ++rank) places.push_back(direct_->arena().address(location, rank));
  return places;
}

int NativeEngine::ranks_on_this_host() const {
  const std::vector<Rank> here = world_.meeting().ranks_on_my_host();
  return static_cast<int>(std::count_if(group_.world.begin(), group_.world.end(), [&](Rank rank) {
    return std::find(here.begin(), here.end(), rank) != here.end();
  }));
}

std::unique_ptr<Engine> NativeEngine::make_another(std::vector<Rank> world_ranks, std::uint16_t context,
                                                   const Options& options) {
  return std::make_unique<NativeEngine>(world_, std::move(world_ranks), context, options);
}

// --- messages ---

namespace {

class MessageWork : public Work::State {
 public:
  explicit MessageWork(transport::PendingMessage work) : work_(std::move(work)) {}
  void wait() override { work_.wait(); }
  bool done() override { return work_.done(); }

 private:
  transport::PendingMessage work_;
};

}  // namespace

void NativeEngine::send(Rank to, ConstBytes bytes, Tag tag, std::optional<Duration> timeout) {
  group_.transport->send(world_rank(to), tag_of(context_, tag), bytes, timeout);
}
void NativeEngine::recv(Rank from, Bytes bytes, Tag tag, std::optional<Duration> timeout) {
  group_.transport->recv(world_rank(from), tag_of(context_, tag), bytes, timeout);
}
Work NativeEngine::send_async(Rank to, ConstBytes bytes, Tag tag) {
  return Work(
      std::make_shared<MessageWork>(group_.transport->send_async(world_rank(to), tag_of(context_, tag), bytes)));
}
Work NativeEngine::recv_async(Rank from, Bytes bytes, Tag tag) {
  return Work(
      std::make_shared<MessageWork>(group_.transport->recv_async(world_rank(from), tag_of(context_, tag), bytes)));
}

// --- collectives ---

void NativeEngine::run(Call call, std::optional<Duration> timeout) {
  if (failure_) std::rethrow_exception(failure_);
  if (call.algorithm == Algorithm::automatic && options_.algorithm != Algorithm::automatic)
    call.algorithm = default_for(call.op);
  Algorithm algorithm = call.algorithm;
  if (algorithm == Algorithm::automatic)
    algorithm = collectives::choose(call.op, call.bytes(), group_.size(), direct_ != nullptr);
  const Fingerprint fingerprint = Fingerprint(call, ++sequence_, context_, history_);
  trace::Span span(recorder_, name_of(call.op), "collective");
  span.arg("sequence", sequence_);
  span.arg("bytes", call.bytes());
  span.arg("algorithm", name_of(algorithm));
  flights_.begin(fingerprint, call.bytes());
  try {
    stalls_.begin(fingerprint, timeout.value_or(options_.timeout));
    execute(call, algorithm, fingerprint);
  } catch (...) {
    flights_.end(false);
    explain(fingerprint);
  }
  flights_.end(true);
  history_ = fingerprint.hash();
  if (hears_from_all(call.op)) stalls_.all_came_to(sequence_);
}

void NativeEngine::execute(const Call& call, Algorithm algorithm, const Fingerprint& fingerprint) {
  const int p = group_.size();
  if (algorithm == Algorithm::direct && p > 1) {
    if (!direct_)
      throw UsageError(fmt::format("rank {}: algorithm direct needs memory that all ranks share, not {}", world_.rank(),
                                   group_.transport->name()),
                       "LOCKSTEP_TRANSPORT=shm, or another algorithm");
    return direct_->run(call, fingerprint);
  }
  if (p == 1) algorithm = Algorithm::naive;
  const collectives::Plan plan = collectives::make_plan(call.op, algorithm, (group_.me - call.root + p) % p, p);
  if (call.op != Op::all_reduce || call.bytes() <= kSlice || ranks_on_this_host() < p)
    return run_plan(plan, call, fingerprint.label(), group_);
  Call slice = call;
  for (std::size_t done = 0; done < call.count; done += slice.count) {
    slice.count = std::min(kSlice / call.element(), call.count - done);
    slice.input = slice.output = call.output + done * call.element();
    run_plan(plan, slice, fingerprint.label(), group_);
  }
}

// --- when things go wrong ---

std::string NativeEngine::who() const { return fmt::format("communicator {}", context_); }

// Fingerprints contain only the communicator's number, so errors add its name.
void NativeEngine::add_name(ErrorFacts& facts) const {
  if (!options_.name.empty()) facts.notes.push_back(fmt::format("{} is {}", who(), options_.name));
}

void NativeEngine::refuse(const std::string& why, const std::string& hint) {
  group_.transport->pass_on(world_.rank(), why, transport::Transport::Ending::mismatch);
  failure_ = std::make_exception_ptr(Mismatch(why, hint));
  std::rethrow_exception(failure_);
}

// Writes this rank's last collectives to a file that the error names.
ErrorFacts NativeEngine::dumped(ErrorFacts facts, const std::string& why) {
  facts.notes.push_back(
      fmt::format("this rank's last collectives are in {}", flights_.dump(options_.dump_dir, world_.rank(), why)));
  add_name(facts);
  return facts;
}

// Throws the exception that is being handled once more, with the name and number of the collective in its text. After
// anything but a UsageError the communicator can no longer be used.
void NativeEngine::explain(const Fingerprint& fingerprint) try {
  const std::string what = fingerprint.text();
  try {
    throw;
  } catch (const UsageError&) {
    --sequence_;  // nothing was sent, so the next call uses this number
    throw;
  } catch (const transport::WrongLabel& wrong) {
    disagree(fingerprint, wrong);
  } catch (const Mismatch& mismatch) {
    std::rethrow_exception(mismatch.with_facts(dumped(mismatch.facts(), mismatch.what())));
  } catch (const PeerDied& died) {
    world_.meeting().report("waiting", what);
    const auto at = std::find(group_.world.begin(), group_.world.end(), died.peer());
    const auto farewell =
        at == group_.world.end() ? std::nullopt : stalls_.farewell_of(static_cast<Rank>(at - group_.world.begin()));
    ErrorFacts facts = died.facts();
    const std::string why = farewell ? *farewell : facts.message;
    // Ranks that wait for this rank, and not for the dead one, would otherwise take this rank for the cause.
    group_.transport->pass_on(died.peer(), why, transport::Transport::Ending::failed);
    facts.rank = world_.rank();
    facts.operation = what;
    facts.message = why;
    facts.tag.reset();  // the error names the collective instead of one of its messages
    facts.message_number = 0;
    add_name(facts);
    std::rethrow_exception(died.with_facts(std::move(facts)));
  } catch (const TimedOut& late) {
    world_.meeting().report("waiting", what);
    std::rethrow_exception(late.with_facts(dumped(late.facts(), late.what())));
  }
} catch (const UsageError&) {
  throw;
} catch (...) {
  failure_ = std::current_exception();
  throw;
}

void NativeEngine::disagree(const Fingerprint& mine, const transport::WrongLabel& wrong) {
  const Fingerprint theirs(wrong.got());
  // The peer may be waiting in an earlier collective than this rank. Then its collective is compared with the one that
  // this rank ran under the same number.
  const Fingerprint ours = flights_.find(theirs.sequence()).value_or(mine);
  const std::string here = ours.text();
  const std::string there = theirs.text();
  std::string text =
      fmt::format("ranks disagree: rank {} calls {}, rank {} calls {}", world_.rank(), here, wrong.peer(), there);
  if (here == there) text += ", but they have called different ones before: compare their last collectives";
  group_.transport->pass_on(world_.rank(), text, transport::Transport::Ending::mismatch);
  const char* const hint = ours.step() == theirs.step()
                               ? "the same calls in the same order on all ranks"
                               : "the same steps on all ranks: one has left out a backward, or run a forward of its "
                                 "own; torch::NoGradGuard around a forward that has no backward";
  throw Mismatch(dumped(ErrorFacts{.message = text, .peer = wrong.peer(), .hint = hint}, text));
}

// --- the arena ---

// Collective: all ranks must ask for the same size.
void NativeEngine::compare_sizes(std::size_t bytes, Call::Purpose purpose) {
  if (bytes > kMostBytes)
    throw UsageError(fmt::format("rank {}: a buffer of {} bytes: the most is {}", world_.rank(), bytes, kMostBytes));
  const int p = group_.size();
  std::vector<std::uint64_t> sizes(static_cast<std::size_t>(p));
  const std::uint64_t mine = bytes;
  Call call{.op = Op::all_gather, .dtype = DType::int64, .purpose = purpose, .count = sizes.size()};
  call.input = bytes_of(mine).data();
  call.output = std::as_writable_bytes(std::span(sizes)).data();
  run(call, {});
  for (Rank rank = 0; rank < p; ++rank)
    if (sizes[index_of(rank)] != mine) {
      const std::string text =
          fmt::format("ranks disagree: rank {} allocates {}, rank {} {}", world_.rank(), describe_bytes(bytes),
                      group_.world[index_of(rank)], describe_bytes(sizes[index_of(rank)]));
      refuse(text, "the same sizes in the same order on all ranks");
    }
}

std::shared_ptr<transport::shm::Region> NativeEngine::share(std::size_t bytes) {
  return transport::shm::share_region(world_.meeting(), *group_.transport, group_.world, tag_of(context_, kSetUp),
                                      bytes, world_.options().shm_dir);
}

std::shared_ptr<Bytes> NativeEngine::allocate(std::size_t bytes) {
  compare_sizes(bytes, Call::Purpose::allocate);
  if (!direct_) return plain_memory(bytes);
  return direct_->arena().add(share(collectives::Arena::bytes_needed(group_.size(), bytes)), bytes);
}

std::shared_ptr<Bytes> NativeEngine::allocate_common(std::size_t bytes) {
  compare_sizes(bytes, Call::Purpose::allocate_common);
  if (group_.size() == 1) return plain_memory(bytes);
  if (!direct_)
    throw UsageError(fmt::format("rank {}: memory common to all ranks: these ranks share none (transport {})",
                                 world_.rank(), group_.transport->name()),
                     "all ranks on one host, with LOCKSTEP_TRANSPORT=shm or unset");
  const auto region = share(std::max<std::size_t>(bytes, 1));
  return {new Bytes(region->data(), bytes), [region](Bytes* view) { delete view; }};
}

}  // namespace lockstep::comm
