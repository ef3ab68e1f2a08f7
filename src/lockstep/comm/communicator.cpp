#include "lockstep/communicator.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <numeric>
#include <utility>

#include "lockstep/base/environment.h"
#include "lockstep/base/fork.h"
#include "lockstep/base/log.h"
#include "lockstep/comm/call_builder.h"
#include "lockstep/comm/engine.h"
#include "lockstep/comm/native_engine.h"
#include "lockstep/comm/numbering.h"
#include "lockstep/comm/serial_executor.h"
#include "lockstep/comm/tracing.h"
#include "lockstep/error.h"
#include "lockstep/rendezvous/meeting.h"
#include "lockstep/world.h"

namespace lockstep {
namespace {

using collectives::Call;

std::vector<Rank> everyone(int size) {
  std::vector<Rank> ranks(static_cast<std::size_t>(size));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

// A work whose wait() is recorded as a span.
class TracedWork : public Work::State {
 public:
  TracedWork(Work work, const char* name, std::shared_ptr<comm::Tracing> tracing)
      : work_(std::move(work)), name_(name), tracing_(std::move(tracing)) {}
  void wait() override {
    trace::Span span(&tracing_->recorder(), "wait", "wait");
    span.arg("for", name_);
    work_.wait();
  }
  bool done() override { return work_.done(); }
  Work::Times times() override { return work_.times(); }

 private:
  Work work_;
  const char* const name_;
  const std::shared_ptr<comm::Tracing> tracing_;
};

}  // namespace

namespace comm {

Options Options::from_environment() {
  Options options;
  if (const auto text = env("LOCKSTEP_ALGORITHM")) options.algorithm = parse_algorithm("LOCKSTEP_ALGORITHM", *text);
  options.timeout = env_seconds("LOCKSTEP_TIMEOUT", options.timeout);
  options.dump_dir = env("LOCKSTEP_DUMP_DIR").value_or("");
  options.trace_file = env("LOCKSTEP_TRACE").value_or("");
  return options;
}

}  // namespace comm

class Communicator::Impl {
 public:
  Impl(World& world, std::unique_ptr<comm::Engine> engine) : world_(world), engine_(std::move(engine)) {}
  ~Impl() {
    serial_.close([this] { engine_->interrupt(); });
    if (collects_ && !birthplace_.is_elsewhere()) save_trace();
    engine_->leave();
    // A program that calls init() has no rank_main() that would report it.
    if (owned_world.use_count() == 1 && !world_.lost().empty()) log::error("{}", world_.lost());
  }

  // The first communicator of a world starts the trace, and collects it when it is destroyed. Communicators made from
  // it share the trace.
  void start_trace() {
    const std::string& file = engine_->options().trace_file;
    if (file.empty()) return;
    share_trace(std::make_shared<comm::Tracing>(engine_->rank(), file));
    collects_ = true;
  }
  void share_trace(std::shared_ptr<comm::Tracing> tracing) {
    tracing_ = std::move(tracing);
    engine_->trace_to(tracing_ ? &tracing_->recorder() : nullptr);
  }
  const std::shared_ptr<comm::Tracing>& tracing() const { return tracing_; }

  void run(Call call, const CallOptions& options) {
    call.step = step_;
    serial_.run([&] { engine_->run(call, options.timeout); });
  }
  Work start(Call call, const CallOptions& options) {
    call.step = step_;
    if (!tracing_) return serial_.later([this, call, timeout = options.timeout] { engine_->run(call, timeout); });
    Work work = serial_.later([this, call, timeout = options.timeout, issued = Clock::now()] {
      engine_->run(call, timeout);
      tracing_->recorder().flight(name_of(call.op), "work", issued, Clock::now(), {{"bytes", call.bytes()}});
    });
    return Work(std::make_shared<TracedWork>(std::move(work), name_of(call.op), tracing_));
  }

  World& world() { return world_; }
  comm::Engine& engine() { return *engine_; }
  comm::SerialExecutor& serial() { return serial_; }
  void begin_step(std::uint32_t step) { step_ = step & 0xff'ffff; }
  std::shared_ptr<World> owned_world;  // set by init(); otherwise the caller owns the world

 private:
  void save_trace() {
    if (engine_->failed() || std::uncaught_exceptions() > 0)
      tracing_->save_alone(engine_->rank());
    else
      world_.note_lost(tracing_->collect(*engine_));
  }

  World& world_;
  const std::unique_ptr<comm::Engine> engine_;
  std::shared_ptr<comm::Tracing> tracing_;  // null if there is no trace
  bool collects_ = false;
  std::atomic<std::uint32_t> step_{0};
  const Birthplace birthplace_;
  comm::SerialExecutor serial_{[this] {
                                 if (tracing_) tracing_->recorder().name_thread("communication");
                               },
                               fmt::format("rank {}'s communication thread", world_.rank())};
};

Communicator::Communicator(World& world, const comm::Options& options)
    : impl_(std::make_unique<Impl>(
          world, std::make_unique<comm::NativeEngine>(world, everyone(world.size()),
                                                      comm::Numbering::of(world).next_of_all(world), options))) {
  if (comm::Numbering::of(world).claim_trace()) impl_->start_trace();
}
Communicator::Communicator(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Communicator::~Communicator() = default;
Communicator::Communicator(Communicator&&) noexcept = default;
Communicator& Communicator::operator=(Communicator&&) noexcept = default;

Rank Communicator::rank() const { return impl_->engine().rank(); }
int Communicator::size() const { return impl_->engine().size(); }
Rank Communicator::world_rank(Rank rank) const { return impl_->engine().world_rank(rank); }
int Communicator::ranks_on_this_host() const { return impl_->engine().ranks_on_this_host(); }
std::optional<TransportKind> Communicator::transport_kind() const { return impl_->engine().transport_kind(); }
std::string Communicator::transport() const {
  const std::optional<TransportKind> kind = transport_kind();
  return kind ? name_of(*kind) : "none";
}

// --- collectives: each is a Call that runs now or later ---

#define LOCKSTEP_COLLECTIVE(name, parameters, make)                                                    \
  void Communicator::name parameters { impl_->run(comm::CallBuilder(impl_->engine()).make, options); } \
  Work Communicator::name##_async parameters { return impl_->start(comm::CallBuilder(impl_->engine()).make, options); }

LOCKSTEP_COLLECTIVE(all_reduce, (Buffer buffer, ReduceOp op, const CallOptions& options),
                    whole(Op::all_reduce, buffer, op, 0, options))
LOCKSTEP_COLLECTIVE(reduce, (Buffer buffer, ReduceOp op, Rank root, const CallOptions& options),
                    whole(Op::reduce, buffer, op, root, options))
LOCKSTEP_COLLECTIVE(broadcast, (Buffer buffer, Rank root, const CallOptions& options),
                    whole(Op::broadcast, buffer, ReduceOp::sum, root, options))
LOCKSTEP_COLLECTIVE(scatter, (ConstBuffer whole, Buffer mine, Rank root, const CallOptions& options),
                    parts(Op::scatter, whole, mine, true, root, ReduceOp::sum, options))
LOCKSTEP_COLLECTIVE(gather, (ConstBuffer mine, Buffer whole, Rank root, const CallOptions& options),
                    parts(Op::gather, mine, whole, false, root, ReduceOp::sum, options))
LOCKSTEP_COLLECTIVE(all_gather, (ConstBuffer mine, Buffer whole, const CallOptions& options),
                    parts(Op::all_gather, mine, whole, false, 0, ReduceOp::sum, options))
LOCKSTEP_COLLECTIVE(reduce_scatter, (ConstBuffer whole, Buffer mine, ReduceOp op, const CallOptions& options),
                    parts(Op::reduce_scatter, whole, mine, true, 0, op, options))
LOCKSTEP_COLLECTIVE(all_to_all, (ConstBuffer input, Buffer output, const CallOptions& options),
                    to_all(input, output, options))
LOCKSTEP_COLLECTIVE(barrier, (const CallOptions& options), barrier(options))
#undef LOCKSTEP_COLLECTIVE

// --- messages ---

namespace {

// The engine, if it can send to this peer with this tag. Throws UsageError if it cannot.
comm::Engine& engine_to(comm::Engine& engine, Rank peer, Tag tag, const char* what) {
  if (peer < 0 || peer >= engine.size() || peer == engine.rank())
    throw UsageError(
        fmt::format("rank {}: {} rank {}: not a peer among {}", engine.world_rank(), what, peer, engine.size()));
  if (tag > comm::kLastUserTag)
    throw UsageError(
        fmt::format("rank {}: tag {} is above the last, {}", engine.world_rank(), tag, comm::kLastUserTag));
  return engine;
}

ConstBytes bytes_in(const ConstBuffer& buffer) { return {buffer.data, buffer.bytes()}; }
Bytes bytes_in(const Buffer& buffer) { return {buffer.data, buffer.bytes()}; }

}  // namespace

void Communicator::send(Rank to, ConstBuffer buffer, Tag tag) {
  comm::Engine& engine = engine_to(impl_->engine(), to, tag, "send to");
  trace::Span span(engine.recorder(), "send", "message");
  span.arg("bytes", buffer.bytes());
  span.arg("to", to);
  engine.send(to, bytes_in(buffer), tag, {});
}
void Communicator::recv(Rank from, Buffer buffer, Tag tag) {
  comm::Engine& engine = engine_to(impl_->engine(), from, tag, "recv from");
  trace::Span span(engine.recorder(), "recv", "message");
  span.arg("bytes", buffer.bytes());
  span.arg("from", from);
  engine.recv(from, bytes_in(buffer), tag, {});
}
Work Communicator::send_async(Rank to, ConstBuffer buffer, Tag tag) {
  comm::Engine& engine = engine_to(impl_->engine(), to, tag, "send to");
  return engine.send_async(to, bytes_in(buffer), tag);
}
Work Communicator::recv_async(Rank from, Buffer buffer, Tag tag) {
  comm::Engine& engine = engine_to(impl_->engine(), from, tag, "recv from");
  return engine.recv_async(from, bytes_in(buffer), tag);
}

// --- groups ---

namespace {

// What a rank wants from a split. It is sent as 64-bit words.
struct Wish {
  std::int64_t color = 0, key = 0, contexts = 0;
  std::array<char, comm::Options::kLongestName + 1> name{};
};
constexpr std::size_t kWishWords = sizeof(Wish) / sizeof(std::int64_t);

// The name, cut to a fixed size. The cut may split a UTF-8 character; that is harmless, because the name is only shown.
std::array<char, comm::Options::kLongestName + 1> fixed(const std::string& name) {
  std::array<char, comm::Options::kLongestName + 1> text{};
  std::copy_n(name.begin(), std::min(name.size(), comm::Options::kLongestName), text.begin());
  return text;
}

}  // namespace

std::optional<Communicator> Communicator::split(int color, int key, const std::string& name) {
  comm::Engine& engine = impl_->engine();
  comm::Numbering& numbering = comm::Numbering::of(impl_->world());
  std::vector<Wish> wishes(static_cast<std::size_t>(size()));
  const Wish mine{color, key, numbering.used(), fixed(name)};
  all_gather(ConstBuffer(&mine, kWishWords, DType::int64),
             Buffer(wishes.data(), kWishWords * wishes.size(), DType::int64));

  std::uint32_t contexts = 0;
  std::vector<Rank> group;
  for (Rank rank = 0; rank < size(); ++rank) {
    const Wish& wish = wishes[index_of(rank)];
    contexts = std::max(contexts, static_cast<std::uint32_t>(wish.contexts));
    if (wish.color == color) group.push_back(rank);
  }
  const std::uint16_t context = numbering.next(contexts);
  if (color < 0) return std::nullopt;
  std::stable_sort(group.begin(), group.end(), [&](Rank a, Rank b) {
    return wishes[static_cast<std::size_t>(a)].key < wishes[static_cast<std::size_t>(b)].key;
  });
  for (const Rank rank : group)
    if (const Wish& wish = wishes[index_of(rank)]; wish.name != mine.name)
      engine.refuse(fmt::format("ranks disagree: rank {} makes the communicator '{}', rank {} makes '{}'", world_rank(),
                                mine.name.data(), world_rank(rank), wish.name.data()),
                    "communicators, and models for DistributedDataParallel, in the same order on all ranks");
  for (Rank& rank : group) rank = engine.world_rank(rank);
  comm::Options options = engine.options();
  const char* const how = static_cast<int>(group.size()) == size() ? "duplicate" : "part";
  options.name = name.empty() ? fmt::format("a {} of {}", how, engine.who()) : mine.name.data();
  auto impl = std::make_unique<Impl>(impl_->world(), engine.make_another(std::move(group), context, options));
  impl->owned_world = impl_->owned_world;
  impl->share_trace(impl_->tracing());
  return Communicator(std::move(impl));
}

Communicator Communicator::duplicate(const std::string& name) { return std::move(*split(0, rank(), name)); }

std::shared_ptr<Bytes> Communicator::allocate_bytes(std::size_t bytes) {
  std::shared_ptr<Bytes> memory;
  impl_->serial().run([&] { memory = impl_->engine().allocate(bytes); });
  return memory;
}
std::shared_ptr<Bytes> Communicator::allocate_common(std::size_t bytes) {
  std::shared_ptr<Bytes> memory;
  impl_->serial().run([&] { memory = impl_->engine().allocate_common(bytes); });
  return memory;
}
bool Communicator::in_arena(const void* data) const { return impl_->engine().in_arena(data); }
std::vector<std::byte*> Communicator::on_all_ranks(const void* data, std::size_t bytes) const {
  return impl_->engine().on_all_ranks(data, bytes);
}

void Communicator::begin_step(std::uint32_t step) { impl_->begin_step(step); }

Algorithm Communicator::choice(Op op, std::size_t count, DType dtype) const {
  return impl_->engine().choice(op, count * bytes_per_element(dtype));
}
Traffic Communicator::traffic() const { return impl_->engine().traffic(); }
trace::Recorder* Communicator::recorder() const { return impl_->engine().recorder(); }
void Communicator::abort(const std::string& why) noexcept { impl_->world().abort(why); }

void Communicator::report_waiting(const std::string& what) noexcept {
  impl_->world().meeting().report("waiting", what);
}

// --- worlds ---

Communicator init(const transport::Options& options, const comm::Options& comm_options) {
  auto world = std::make_shared<World>(World::from_environment(options));
  Communicator comm(*world, comm_options);
  comm.impl_->owned_world = std::move(world);
  return comm;
}

int rank_main(const std::function<void(Communicator&)>& body) noexcept {
  return rank_main(std::function<void(World&)>([&](World& world) {
    Communicator comm(world);
    body(comm);
  }));
}

int rank_main(const std::function<void(Communicator&)>& body, const transport::Options& options,
              const comm::Options& comm_options) noexcept {
  return rank_main(std::function<void(World&)>([&](World& world) {
                     Communicator comm(world, comm_options);
                     body(comm);
                   }),
                   options);
}

void thread_world(int size, const std::function<void(Communicator&)>& body, const transport::Options& options,
                  const comm::Options& comm_options) {
  thread_world(size, std::function<void(World&)>([&](World& world) {
                 Communicator comm(world, comm_options);
                 body(comm);
               }),
               options);
}

}  // namespace lockstep
