#include "lockstep/comm/native.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "lockstep/base/log.h"
#include "lockstep/collectives/choose.h"
#include "lockstep/collectives/run.h"
#include "lockstep/transport/shm/share.h"

namespace lockstep::comm {
namespace {

using collectives::Call;
using transport::Label;

// A tag consists of the communicator's number and, in its lower half, one of the user's tags or one of these.
constexpr Tag kCollective = 0xffff;
constexpr Tag kPosition = 0xfffe;
constexpr Tag kSetUp = 0xfffd;
constexpr Tag kTrace = 0xfffc;
constexpr Tag kLastUserTag = 0xfeff;

constexpr std::size_t kMostBytes = std::size_t{1} << 40;  // of a buffer in the arena; the limit comes from Location

Tag tag_of(std::uint16_t context, Tag tag) { return static_cast<Tag>(context) << 16 | tag; }

// What must be the same on all ranks. All ranks use the values of the first rank.
struct Agreed {
  Algorithm algorithm;
  std::size_t small_bytes;
  std::size_t segment_bytes;
  bool trace;
  bool fetch;  // ranks copy from each other's memory, if the kernel allows it
};

bool agree(Options& options, const collectives::Party& party, Tag tag, bool fetch) {
  Agreed agreed{options.algorithm, options.small_bytes, options.segment_bytes, !options.trace_file.empty(), fetch};
  if (party.me == 0) {
    for (Rank rank = 1; rank < party.size(); ++rank)
      party.transport->send(party.world[static_cast<std::size_t>(rank)], tag, bytes_of(agreed));
  } else {
    party.transport->recv(party.world[0], tag, writable_bytes_of(agreed));
  }
  options.algorithm = agreed.algorithm;
  options.small_bytes = agreed.small_bytes;
  options.segment_bytes = agreed.segment_bytes;
  if (!agreed.trace) options.trace_file.clear();
  // The name of a trace that rank 0 alone asked for is known only there; the others use this one for their own files.
  if (agreed.trace && options.trace_file.empty()) options.trace_file = "lockstep-trace.json";
  // A segment must hold at least one cache line for every rank.
  const auto least = static_cast<std::size_t>(party.size()) * 64;
  options.segment_bytes = std::max(options.segment_bytes / 64 * 64, least);
  options.small_bytes = std::max<std::size_t>(options.small_bytes / 64 * 64, 64);
  return agreed.fetch;
}

// The last collective of a rank that leaves. The fingerprint also contains a hash of all collectives before it.
struct Last {
  std::int64_t rank = 0;
  Label call;  // empty if there was none
  std::string text() const { return call.empty() ? "none at all" : collectives::describe(call); }
};

// True if the operation can end only after every rank has begun it.
bool hears_from_all(Op op) { return op != Op::reduce && op != Op::broadcast && op != Op::scatter && op != Op::gather; }

// The transport says "rank 0: stopped because CAUSE; it was waiting in recv of ...". This returns CAUSE alone, because
// the error names the collective instead of the message.
std::string cause_in(const std::string& text) {
  constexpr std::string_view kBefore = ": stopped because ";
  const auto begin = text.find(kBefore);
  if (begin == std::string::npos) return text;
  const auto from = begin + kBefore.size();
  return text.substr(from, text.rfind("; it was waiting in ") - from);
}

std::shared_ptr<Bytes> plain_memory(std::size_t bytes) {
  auto memory = std::shared_ptr<std::byte>(
      static_cast<std::byte*>(::operator new (std::max<std::size_t>(bytes, 1), std::align_val_t{64})),
      [](std::byte* old) { ::operator delete (old, std::align_val_t{64}); });
  std::fill_n(memory.get(), bytes, std::byte{0});
  return {new Bytes(memory.get(), bytes), [memory](Bytes* view) { delete view; }};
}

}  // namespace

Native::Native(World& world, std::vector<Rank> group, std::uint16_t context, const Options& options)
    : world_(world),
      options_(options),
      context_(context),
      party_{.transport = group.size() > 1 ? &world.transport() : nullptr,
             .world = std::move(group),
             .me = 0,
             .tag = tag_of(context, kCollective),
             .on_delay = {},
             .work = {},
             .arrivals = {}},
      watch_((party_.me = static_cast<Rank>(std::find(party_.world.begin(), party_.world.end(), world.rank()) -
                                            party_.world.begin()),
              party_),
             flight_, tag_of(context, kPosition), options_) {
  party_.on_delay = [this](std::span<const Rank> awaited) { watch_.on_delay(awaited); };
  if (party_.size() == 1) return;
  const Tag set_up = tag_of(context, kSetUp);
  const bool fetch = agree(options_, party_, set_up, world.options().shm_copy == "auto");
  if (party_.transport->name() != "shm") return;
  const auto region = transport::shm::share_region(
      world.meeting(), *party_.transport, party_.world, set_up,
      collectives::Board::bytes_needed(party_.size(), options_.small_bytes, options_.segment_bytes),
      world.options().shm_dir);
  direct_ = std::make_unique<collectives::Direct>(
      collectives::Board(region, party_.me, party_.size(), options_.small_bytes, options_.segment_bytes), party_);
  if (!fetch) return;
  std::vector<transport::shm::PeerMemory> memories;
  for (const Rank rank : party_.world)
    memories.emplace_back(transport::PeerProcess::of(world.meeting().peers()[static_cast<std::size_t>(rank)]));
  direct_->try_memories(std::move(memories));
}

void Native::leave() noexcept {
  // Nothing is compared while an exception unwinds the stack, or after an error that the program has caught: then the
  // other ranks are told the reason for leaving instead.
  if (party_.size() == 1 || failure_ || std::uncaught_exceptions() > 0 || birthplace_.is_elsewhere() ||
      party_.transport->ended())
    return;
  watch_.say_farewell(sequence_);
  const Last mine{world_.rank(), flight_.find(sequence_).value_or(Label{})};
  const auto first =
      world_.meeting().compare(fmt::format("last/{}/{}", context_, party_.world[0]),
                               std::string(reinterpret_cast<const char*>(&mine), sizeof mine), party_.size());
  if (!first || first->size() != sizeof(Last)) return;
  Last other;
  std::memcpy(&other, first->data(), sizeof other);
  if (other.call == mine.call) return;
  const std::string text = fmt::format("ranks disagree: the last collective of rank {} was {}, that of rank {} was {}",
                                       mine.rank, mine.text(), other.rank, other.text());
  world_.note_lost(fmt::format("{}; {}; try: the same calls in the same order on all ranks", text, dumped(text)));
}

Algorithm Native::choice(Op op, std::size_t bytes) const {
  if (const Algorithm set = default_for(op); set != Algorithm::automatic) return set;
  return collectives::choose(op, bytes, party_.size(), direct_ != nullptr);
}

// LOCKSTEP_ALGORITHM, if the op has this algorithm: there is no ring for a barrier, for example.
Algorithm Native::default_for(Op op) const {
  const auto own = collectives::algorithms_of(op);
  const bool has =
      options_.algorithm == Algorithm::direct || std::find(own.begin(), own.end(), options_.algorithm) != own.end();
  return has ? options_.algorithm : Algorithm::automatic;
}

Tag Native::message_tag(Tag tag) const {
  if (tag > kLastUserTag)
    throw UsageError(fmt::format("rank {}: tag {} is above the last, {}", world_.rank(), tag, kLastUserTag));
  return tag_of(context_, tag);
}

bool Native::in_arena(const void* data) const {
  return direct_ && direct_->arena().find(data, 0) != collectives::kPrivate;
}

Tag Native::trace_tag() const { return tag_of(context_, kTrace); }

void Native::run(Call call, std::optional<Duration> timeout) {
  if (failure_) std::rethrow_exception(failure_);
  if (call.algorithm == Algorithm::automatic && options_.algorithm != Algorithm::automatic)
    call.algorithm = default_for(call.op);
  Algorithm algorithm = call.algorithm;
  if (algorithm == Algorithm::automatic)
    algorithm = collectives::choose(call.op, call.bytes(), party_.size(), direct_ != nullptr);
  const Label fingerprint = collectives::fingerprint(call, ++sequence_, context_, history_);
  trace::Span span(recorder_, name_of(call.op), "collective");
  span.arg("sequence", sequence_);
  span.arg("bytes", call.bytes());
  span.arg("algorithm", name_of(algorithm));
  flight_.begin(fingerprint, call.bytes());
  try {
    watch_.begin(fingerprint, timeout.value_or(options_.timeout));
    execute(call, algorithm, fingerprint);
  } catch (...) {
    flight_.end(false);
    explain(fingerprint);
  }
  flight_.end(true);
  history_ = collectives::history_after(fingerprint);
  if (hears_from_all(call.op)) watch_.all_came_to(sequence_);
}

void Native::execute(const Call& call, Algorithm algorithm, const Label& fingerprint) {
  const int p = party_.size();
  if (algorithm == Algorithm::direct && p > 1) {
    if (!direct_)
      throw UsageError(fmt::format("rank {}: algorithm direct needs memory that all ranks share, not {}", world_.rank(),
                                   party_.transport->name()),
                       "LOCKSTEP_TRANSPORT=shm, or another algorithm");
    return direct_->run(call, fingerprint);
  }
  if (p == 1) algorithm = Algorithm::naive;
  run_plan(collectives::make_plan(call.op, algorithm, (party_.me - call.root + p) % p, p), call, fingerprint, party_);
}

// --- when things go wrong ---

std::string Native::who() const { return fmt::format("communicator {}", context_); }

// Fingerprints contain only the communicator's number, so errors add its name.
std::string Native::name_note() const {
  return options_.name.empty() ? "" : fmt::format("; {} is {}", who(), options_.name);
}

void Native::refuse(const std::string& why, const std::string& hint) {
  party_.transport->pass_on(world_.rank(), why, transport::Transport::Ending::mismatch);
  failure_ = std::make_exception_ptr(Mismatch(why, hint));
  std::rethrow_exception(failure_);
}

std::string Native::dumped(const std::string& why) {
  return fmt::format("this rank's last collectives are in {}{}", flight_.dump(options_.dump_dir, world_.rank(), why),
                     name_note());
}

// Throws the exception that is being handled once more, with the name and number of the collective in its text. After
// anything but a UsageError the communicator can no longer be used.
void Native::explain(const Label& fingerprint) try {
  const std::string what = collectives::describe(fingerprint);
  try {
    throw;
  } catch (const UsageError&) {
    --sequence_;  // nothing was sent, so the next call uses this number
    throw;
  } catch (const transport::WrongLabel& wrong) {
    disagree(fingerprint, wrong);
  } catch (const Mismatch& mismatch) {
    const std::string text = mismatch.what();
    throw Mismatch(fmt::format("{}; {}", text, dumped(text)));
  } catch (const PeerDied& died) {
    world_.meeting().report("waiting", what);
    const auto at = std::find(party_.world.begin(), party_.world.end(), died.peer());
    const auto farewell =
        at == party_.world.end() ? std::nullopt : watch_.farewell_of(static_cast<Rank>(at - party_.world.begin()));
    const std::string why = farewell ? *farewell : cause_in(died.what());
    // Ranks that wait for this rank, and not for the dead one, would otherwise take this rank for the cause.
    party_.transport->pass_on(died.peer(), why, transport::Transport::Ending::failed);
    std::rethrow_exception(
        reworded(died, fmt::format("rank {}: stopped in {}: {}{}", world_.rank(), what, why, name_note())));
  } catch (const TimedOut& late) {
    world_.meeting().report("waiting", what);
    const std::string text = late.what();
    throw TimedOut(fmt::format("{}; {}", text, dumped(text)));
  }
} catch (const UsageError&) {
  throw;
} catch (...) {
  failure_ = std::current_exception();
  throw;
}

void Native::disagree(const Label& mine, const transport::WrongLabel& wrong) {
  // The peer may be waiting in an earlier collective than this rank. Then its collective is compared with the one that
  // this rank ran under the same number.
  const Label ours = flight_.find(collectives::sequence_of(wrong.got())).value_or(mine);
  const std::string here = collectives::describe(ours);
  const std::string there = collectives::describe(wrong.got());
  std::string text =
      fmt::format("ranks disagree: rank {} calls {}, rank {} calls {}", world_.rank(), here, wrong.peer(), there);
  if (here == there) text += ", but they have called different ones before: compare their last collectives";
  party_.transport->pass_on(world_.rank(), text, transport::Transport::Ending::mismatch);
  throw Mismatch(fmt::format("{}; {}", text, dumped(text)),
                 collectives::step_of(ours) == collectives::step_of(wrong.got())
                     ? "the same calls in the same order on all ranks"
                     : "the same steps on all ranks: one has left out a backward, or run a forward of its own; "
                       "torch::NoGradGuard around a forward that has no backward");
}

// --- the arena ---

// Collective: all ranks must ask for the same size.
void Native::compare_sizes(std::size_t bytes, Call::Purpose purpose) {
  if (bytes > kMostBytes)
    throw UsageError(fmt::format("rank {}: a buffer of {} bytes: the most is {}", world_.rank(), bytes, kMostBytes));
  const int p = party_.size();
  std::vector<std::uint64_t> sizes(static_cast<std::size_t>(p));
  const std::uint64_t mine = bytes;
  Call call{.op = Op::all_gather, .dtype = DType::int64, .purpose = purpose, .count = sizes.size()};
  call.input = bytes_of(mine).data();
  call.output = std::as_writable_bytes(std::span(sizes)).data();
  run(call, {});
  for (Rank rank = 0; rank < p; ++rank)
    if (sizes[static_cast<std::size_t>(rank)] != mine) {
      const std::string text = fmt::format("ranks disagree: rank {} allocates {}, rank {} {}", world_.rank(),
                                           describe_bytes(bytes), party_.world[static_cast<std::size_t>(rank)],
                                           describe_bytes(sizes[static_cast<std::size_t>(rank)]));
      refuse(text, "the same sizes in the same order on all ranks");
    }
}

std::shared_ptr<transport::shm::Region> Native::share(std::size_t bytes) {
  return transport::shm::share_region(world_.meeting(), *party_.transport, party_.world, tag_of(context_, kSetUp),
                                      bytes, world_.options().shm_dir);
}

std::shared_ptr<Bytes> Native::allocate(std::size_t bytes) {
  compare_sizes(bytes, Call::Purpose::allocate);
  if (!direct_) return plain_memory(bytes);
  return direct_->arena().add(share(collectives::Arena::bytes_needed(party_.size(), bytes)), bytes);
}

std::shared_ptr<Bytes> Native::allocate_common(std::size_t bytes) {
  compare_sizes(bytes, Call::Purpose::allocate_common);
  if (party_.size() == 1) return plain_memory(bytes);
  if (!direct_)
    throw UsageError(fmt::format("rank {}: memory common to all ranks: these ranks share none (transport {})",
                                 world_.rank(), party_.transport->name()),
                     "all ranks on one host, with LOCKSTEP_TRANSPORT=shm or unset");
  const auto region = share(std::max<std::size_t>(bytes, 1));
  return {new Bytes(region->data(), bytes), [region](Bytes* view) { delete view; }};
}

}  // namespace lockstep::comm
