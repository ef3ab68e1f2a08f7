#include "lockstep/comm/communicator.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <numeric>
#include <utility>

#include "lockstep/base/environment.h"
#include "lockstep/base/error.h"
#include "lockstep/base/fork.h"
#include "lockstep/base/log.h"
#include "lockstep/comm/checked.h"
#include "lockstep/comm/native.h"
#include "lockstep/comm/order.h"
#include "lockstep/comm/tracing.h"

namespace lockstep {
namespace {

using collectives::Call;

std::vector<Rank> everyone(int size) {
  std::vector<Rank> ranks(static_cast<std::size_t>(size));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

// A message in flight.
class MessageWork : public Work::State {
 public:
  explicit MessageWork(transport::Work work) : work_(std::move(work)) {}
  void wait() override { work_.wait(); }
  bool done() override { return work_.done(); }

 private:
  transport::Work work_;
};

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
  Impl(World& world, std::vector<Rank> group, std::uint16_t context, const comm::Options& options)
      : native_(world, std::move(group), context, options) {}
  ~Impl() {
    order_.close([this] { native_.interrupt(); });
    if (collects_ && !birthplace_.is_elsewhere()) save_trace();
    native_.leave();
    // A program that calls init() has no rank_main() that would report it.
    if (owned_world.use_count() == 1 && !native_.world().lost().empty()) log::error("{}", native_.world().lost());
  }

  // The first communicator of a world starts the trace, and collects it when it is destroyed. Communicators made from
  // it share the trace.
  void start_trace() {
    const std::string& file = native_.options().trace_file;
    if (file.empty()) return;
    share_trace(std::make_shared<comm::Tracing>(native_.party().me, file));
    collects_ = true;
  }
  void share_trace(std::shared_ptr<comm::Tracing> tracing) {
    tracing_ = std::move(tracing);
    native_.trace_to(tracing_ ? &tracing_->recorder() : nullptr);
  }
  const std::shared_ptr<comm::Tracing>& tracing() const { return tracing_; }

  void run(Call call, const CallOptions& options) {
    call.step = step_;
    order_.run([&] { native_.run(call, options.timeout); });
  }
  Work start(Call call, const CallOptions& options) {
    call.step = step_;
    if (!tracing_) return order_.later([this, call, timeout = options.timeout] { native_.run(call, timeout); });
    Work work = order_.later([this, call, timeout = options.timeout, issued = Clock::now()] {
      native_.run(call, timeout);
      tracing_->recorder().flight(name_of(call.op), "work", issued, Clock::now(), {{"bytes", call.bytes()}});
    });
    return Work(std::make_shared<TracedWork>(std::move(work), name_of(call.op), tracing_));
  }

  comm::Native& native() { return native_; }
  comm::Order& order() { return order_; }
  void begin_step(std::uint32_t step) { step_ = step & 0xff'ffff; }
  std::shared_ptr<World> owned_world;  // set by init(); otherwise the caller owns the world

 private:
  void save_trace() {
    if (native_.failed() || std::uncaught_exceptions() > 0)
      tracing_->save_alone(native_.party().me);
    else
      native_.world().note_lost(tracing_->collect(native_.party(), native_.trace_tag()));
  }

  comm::Native native_;
  std::shared_ptr<comm::Tracing> tracing_;  // null if there is no trace
  bool collects_ = false;
  std::atomic<std::uint32_t> step_{0};
  const Birthplace birthplace_;
  comm::Order order_{[this] {
                       if (tracing_) tracing_->recorder().name_thread("communication");
                     },
                     fmt::format("rank {}'s communication thread", native_.world().rank())};
};

Communicator::Communicator(World& world, const comm::Options& options)
    : impl_(std::make_unique<Impl>(world, everyone(world.size()), world.next_world_context(), options)) {
  if (world.claim_trace()) impl_->start_trace();
}
Communicator::Communicator(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Communicator::~Communicator() = default;
Communicator::Communicator(Communicator&&) noexcept = default;
Communicator& Communicator::operator=(Communicator&&) noexcept = default;

Rank Communicator::rank() const { return impl_->native().party().me; }
int Communicator::size() const { return impl_->native().party().size(); }
Rank Communicator::world_rank(Rank rank) const {
  return impl_->native().party().world.at(static_cast<std::size_t>(rank));
}
std::string Communicator::transport() const {
  const auto* transport = impl_->native().party().transport;
  return transport == nullptr ? "none" : transport->name();
}

// --- collectives: each is a Call that runs now or later ---

#define LOCKSTEP_COLLECTIVE(name, parameters, make)                                                        \
  void Communicator::name parameters { impl_->run(comm::Checked(impl_->native().party()).make, options); } \
  Work Communicator::name##_async parameters {                                                             \
    return impl_->start(comm::Checked(impl_->native().party()).make, options);                             \
  }

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

struct Route {
  transport::Transport& transport;
  Rank peer;
  Tag tag;
};

Route route_to(comm::Native& native, Rank peer, Tag tag, const char* what) {
  const auto& party = native.party();
  if (peer < 0 || peer >= party.size() || peer == party.me)
    throw UsageError(fmt::format("rank {}: {} rank {}: not a peer among {}", party.me, what, peer, party.size()));
  return {*party.transport, party.world[static_cast<std::size_t>(peer)], native.message_tag(tag)};
}

ConstBytes bytes_in(const ConstBuffer& buffer) { return {buffer.data, buffer.bytes()}; }
Bytes bytes_in(const Buffer& buffer) { return {buffer.data, buffer.bytes()}; }

}  // namespace

void Communicator::send(Rank to, ConstBuffer buffer, Tag tag) {
  const Route route = route_to(impl_->native(), to, tag, "send to");
  trace::Span span(impl_->native().recorder(), "send", "message");
  span.arg("bytes", buffer.bytes());
  span.arg("to", to);
  route.transport.send(route.peer, route.tag, bytes_in(buffer));
}
void Communicator::recv(Rank from, Buffer buffer, Tag tag) {
  const Route route = route_to(impl_->native(), from, tag, "recv from");
  trace::Span span(impl_->native().recorder(), "recv", "message");
  span.arg("bytes", buffer.bytes());
  span.arg("from", from);
  route.transport.recv(route.peer, route.tag, bytes_in(buffer));
}
Work Communicator::send_async(Rank to, ConstBuffer buffer, Tag tag) {
  const Route route = route_to(impl_->native(), to, tag, "send to");
  return Work(std::make_shared<MessageWork>(route.transport.send_async(route.peer, route.tag, bytes_in(buffer))));
}
Work Communicator::recv_async(Rank from, Buffer buffer, Tag tag) {
  const Route route = route_to(impl_->native(), from, tag, "recv from");
  return Work(std::make_shared<MessageWork>(route.transport.recv_async(route.peer, route.tag, bytes_in(buffer))));
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
  comm::Native& native = impl_->native();
  World& world = native.world();
  std::vector<Wish> wishes(static_cast<std::size_t>(size()));
  const Wish mine{color, key, world.contexts(), fixed(name)};
  all_gather(ConstBuffer(&mine, kWishWords, DType::int64),
             Buffer(wishes.data(), kWishWords * wishes.size(), DType::int64));

  std::uint32_t contexts = 0;
  std::vector<Rank> group;
  for (Rank rank = 0; rank < size(); ++rank) {
    const Wish& wish = wishes[static_cast<std::size_t>(rank)];
    contexts = std::max(contexts, static_cast<std::uint32_t>(wish.contexts));
    if (wish.color == color) group.push_back(rank);
  }
  const std::uint16_t context = world.next_context(contexts);
  if (color < 0) return std::nullopt;
  std::stable_sort(group.begin(), group.end(), [&](Rank a, Rank b) {
    return wishes[static_cast<std::size_t>(a)].key < wishes[static_cast<std::size_t>(b)].key;
  });
  for (const Rank rank : group)
    if (const Wish& wish = wishes[static_cast<std::size_t>(rank)]; wish.name != mine.name)
      native.refuse(fmt::format("ranks disagree: rank {} makes the communicator '{}', rank {} makes '{}'", world_rank(),
                                mine.name.data(), world_rank(rank), wish.name.data()),
                    "communicators, and models for DistributedDataParallel, in the same order on all ranks");
  for (Rank& rank : group) rank = native.party().world[static_cast<std::size_t>(rank)];
  comm::Options options = native.options();
  const char* const how = static_cast<int>(group.size()) == size() ? "duplicate" : "part";
  options.name = name.empty() ? fmt::format("a {} of {}", how, native.who()) : mine.name.data();
  auto impl = std::make_unique<Impl>(world, std::move(group), context, options);
  impl->owned_world = impl_->owned_world;
  impl->share_trace(impl_->tracing());
  return Communicator(std::move(impl));
}

Communicator Communicator::duplicate(const std::string& name) { return std::move(*split(0, rank(), name)); }

std::shared_ptr<Bytes> Communicator::allocate_bytes(std::size_t bytes) {
  std::shared_ptr<Bytes> memory;
  impl_->order().run([&] { memory = impl_->native().allocate(bytes); });
  return memory;
}
std::shared_ptr<Bytes> Communicator::allocate_common(std::size_t bytes) {
  std::shared_ptr<Bytes> memory;
  impl_->order().run([&] { memory = impl_->native().allocate_common(bytes); });
  return memory;
}
bool Communicator::in_arena(const void* data) const { return impl_->native().in_arena(data); }

void Communicator::begin_step(std::uint32_t step) { impl_->begin_step(step); }

Algorithm Communicator::choice(Op op, std::size_t count, DType dtype) const {
  return impl_->native().choice(op, count * bytes_per_element(dtype));
}
Traffic Communicator::traffic() const {
  const auto& party = impl_->native().party();
  return {party.messages, party.bytes};
}
trace::Recorder* Communicator::recorder() const { return impl_->native().recorder(); }
void Communicator::abort(const std::string& why) noexcept { impl_->native().world().abort(why); }

void Communicator::report_waiting(const std::string& what) noexcept {
  impl_->native().world().meeting().report("waiting", what);
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
