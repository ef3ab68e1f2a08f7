// The native engine: runs the collectives of one group of ranks over a transport and, if the ranks share memory,
// directly in that memory.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "lockstep/base/fork.h"
#include "lockstep/collectives/call.h"
#include "lockstep/collectives/direct.h"
#include "lockstep/collectives/fingerprint.h"
#include "lockstep/comm/engine.h"
#include "lockstep/comm/flight_recorder.h"
#include "lockstep/comm/stall_monitor.h"
#include "lockstep/trace.h"
#include "lockstep/transport.h"
#include "lockstep/world.h"

namespace lockstep::comm {

class NativeEngine final : public Engine {
 public:
  // Collective over `group`, which lists ranks of the world in the order of their new numbers.
  NativeEngine(World& world, std::vector<Rank> group, std::uint16_t context, const Options& options);
  NativeEngine(const NativeEngine&) = delete;

  Rank rank() const override { return group_.me; }
  const std::vector<Rank>& world_ranks() const override { return group_.world; }
  std::optional<TransportKind> transport_kind() const override {
    return group_.transport ? std::optional(group_.transport->kind()) : std::nullopt;
  }
  int ranks_on_this_host() const override;
  const Options& options() const override { return options_; }
  std::string who() const override;
  std::unique_ptr<Engine> make_another(std::vector<Rank> world_ranks, std::uint16_t context,
                                       const Options& options) override;

  void run(collectives::Call call, std::optional<Duration> timeout) override;
  Algorithm choice(Op op, std::size_t bytes) const override;
  Traffic traffic() const override { return {group_.messages, group_.bytes}; }

  void send(Rank to, ConstBytes bytes, Tag tag, std::optional<Duration> timeout) override;
  void recv(Rank from, Bytes bytes, Tag tag, std::optional<Duration> timeout) override;
  Work send_async(Rank to, ConstBytes bytes, Tag tag) override;
  Work recv_async(Rank from, Bytes bytes, Tag tag) override;

  std::shared_ptr<Bytes> allocate(std::size_t bytes) override;
  std::shared_ptr<Bytes> allocate_common(std::size_t bytes) override;
  bool in_arena(const void* data) const override;
  std::vector<std::byte*> on_all_ranks(const void* data, std::size_t bytes) const override;

  void trace_to(trace::Recorder* recorder) override { recorder_ = recorder; }
  trace::Recorder* recorder() const override { return recorder_; }

  [[noreturn]] void refuse(const std::string& why, const std::string& hint) override;
  bool failed() const override { return failure_ != nullptr; }
  void interrupt() override { stalls_.stop(); }
  void leave() noexcept override;

 private:
  void execute(const collectives::Call& call, Algorithm algorithm, const Fingerprint& fingerprint);
  void compare_sizes(std::size_t bytes, collectives::Call::Purpose purpose);
  std::shared_ptr<transport::shm::Region> share(std::size_t bytes);
  Algorithm default_for(Op op) const;
  [[noreturn]] void explain(const Fingerprint& fingerprint);
  [[noreturn]] void disagree(const Fingerprint& mine, const transport::WrongLabel& wrong);
  ErrorFacts dumped(ErrorFacts facts, const std::string& why);
  void add_name(ErrorFacts& facts) const;

  World& world_;
  Options options_;
  const std::uint16_t context_;
  collectives::Group group_;
  FlightRecorder flights_;
  StallMonitor stalls_;
  std::unique_ptr<collectives::Direct> direct_;  // null if the ranks share no memory
  const Birthplace birthplace_;
  std::uint64_t sequence_ = 0;
  std::uint16_t history_ = 0;
  std::exception_ptr failure_;  // the error that every later call throws again
  trace::Recorder* recorder_ = nullptr;
};

}  // namespace lockstep::comm
