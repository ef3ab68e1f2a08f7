#include "lockstep/parallel/data/place_lender.h"

#include <pthread.h>
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "lockstep/base/fork.h"
#include "lockstep/libtorch/versions.h"

namespace lockstep::parallel {
namespace {

// Identifies the backward that runs on this thread; null outside of backward.
const void* current_backward() { return torch::autograd::get_current_graph_task_exec_info(); }

// All places of this process that are lent, by their address. libtorch also allocates memory of which it keeps nothing
// but the address (raw_allocate), so the address must be enough to give a place back.
class Loans {
 public:
  static Loans& instance() {
    static auto* const loans = [] {
      auto* made = new Loans;  // tensors may be freed after everything else
      ::pthread_atfork([] { instance().mutex_.lock(); }, [] { instance().mutex_.unlock(); },
                       [] { instance().mutex_.unlock(); });
      return made;
    }();
    return *loans;
  }

  void add(void* place, std::shared_ptr<Bytes> memory, std::shared_ptr<std::atomic<bool>> out) {
    out->store(true, std::memory_order_relaxed);
    const std::lock_guard lock(mutex_);
    loans_.emplace(place, Loan{std::move(memory), std::move(out)});
  }
  // Returns false if the address is not that of a lent place.
  bool give_back(void* place) {
    Loan loan;
    {
      const std::lock_guard lock(mutex_);
      const auto found = loans_.find(place);
      if (found == loans_.end()) return false;
      loan = std::move(found->second);
      loans_.erase(found);
    }
    loan.out->store(false, std::memory_order_release);
    return true;
  }

 private:
  struct Loan {
    std::shared_ptr<Bytes> memory{};
    std::shared_ptr<std::atomic<bool>> out{};
  };
  std::mutex mutex_;
  std::unordered_map<void*, Loan> loans_;
};

void give_back(void* place) { Loans::instance().give_back(place); }

}  // namespace

struct PlaceLender::State {
  static constexpr std::size_t kNone = ~std::size_t{0};

  struct Place {
    Bytes bytes{};
    std::shared_ptr<Bytes> memory{};
    std::shared_ptr<std::atomic<bool>> out = std::make_shared<std::atomic<bool>>(false);
    bool lent_now = false;
    std::size_t turn = kNone;  // which allocation of its size becomes this gradient
  };
  // The allocations of one size in a backward.
  struct Size {
    std::size_t bytes;
    std::vector<std::size_t> parameters;  // by turn; kNone where no gradient is expected
    std::vector<const void*> made;        // in the backward that runs now, by turn
  };

  Size* find(std::size_t bytes) {
    const auto size = std::lower_bound(sizes.begin(), sizes.end(), bytes,
                                       [](const Size& one, std::size_t wanted) { return one.bytes < wanted; });
    return size != sizes.end() && size->bytes == bytes ? &*size : nullptr;
  }

  c10::DataPtr allocate(std::size_t bytes) {
    Size* size = backward != nullptr && current_backward() == backward ? find(bytes) : nullptr;
    if (size == nullptr) return plain_memory(bytes);
    const std::size_t turn = size->made.size();
    const std::size_t parameter = turn < size->parameters.size() ? size->parameters[turn] : kNone;
    c10::DataPtr memory = parameter != kNone ? lend(parameter) : c10::DataPtr();
    if (memory.get() == nullptr) memory = plain_memory(bytes);
    size->made.push_back(memory.get());
    return memory;
  }

  c10::DataPtr lend(std::size_t parameter) {
    if (birthplace.is_elsewhere() || !may_lend || !may_lend(parameter)) return {};
    Place& place = places[parameter];
    place.lent_now = true;
    Loans::instance().add(place.bytes.data(), place.memory, place.out);
    return {place.bytes.data(), place.bytes.data(), &give_back, at::Device(at::kCPU)};
  }

  std::function<bool(std::size_t)> may_lend;  // null when the lender is destroyed
  const Birthplace birthplace{};              // the memory is shared with other ranks, not with a forked child
  std::vector<Place> places{};
  std::vector<Size> sizes{};  // sorted
  const void* backward = nullptr;
};

// The lender of the backward that this thread runs. It is found through a plain pointer, which outlives the thread's
// other variables.
class LendingAllocator final : public libtorch::CpuAllocator {
 public:
  // Installs it if it is not yet there.
  static LendingAllocator& instance() {
    static auto* const installed = [] {
      auto* made = new LendingAllocator(c10::GetAllocator(at::kCPU));  // tensors refer to it until the process ends
      c10::SetAllocator(at::kCPU, made);
      return made;
    }();
    return *installed;
  }

  static bool serves(const std::shared_ptr<PlaceLender::State>& state) { return serving_ == state.get(); }
  static void serve(const std::shared_ptr<PlaceLender::State>& state) {
    thread_local struct Hold {
      std::shared_ptr<PlaceLender::State> state{};
      ~Hold() { serving_ = nullptr; }
    } hold;
    hold.state = state;
    serving_ = state.get();
  }

  c10::DataPtr plain(std::size_t bytes) const { return behind->allocate(bytes); }
  c10::DeleterFnPtr raw_deleter() const override { return &free_raw; }

 private:
  explicit LendingAllocator(c10::Allocator* own) : CpuAllocator(own) {}
  c10::DataPtr make(std::size_t bytes) const override {
    return serving_ != nullptr ? serving_->allocate(bytes) : plain(bytes);
  }

  static void free_raw(void* memory) {
    if (!Loans::instance().give_back(memory)) instance().behind->raw_deleter()(memory);
  }

  static thread_local PlaceLender::State* serving_;
};

thread_local PlaceLender::State* LendingAllocator::serving_ = nullptr;

c10::DataPtr plain_memory(std::size_t bytes) { return LendingAllocator::instance().plain(bytes); }

PlaceLender::PlaceLender(std::size_t parameters, std::function<bool(std::size_t)> may_lend)
    : state_(std::make_shared<State>()) {
  LendingAllocator::instance();
  state_->may_lend = std::move(may_lend);
  state_->places.resize(parameters);
}

PlaceLender::~PlaceLender() {
  state_->may_lend = nullptr;  // the thread that ran backward may still refer to the state
  end();
}

void PlaceLender::set_place(std::size_t parameter, Bytes place, const std::shared_ptr<Bytes>& memory) {
  State& state = *state_;
  State::Place& one = state.places[parameter];
  one.bytes = place;
  one.memory = memory;
  one.out = std::make_shared<std::atomic<bool>>(false);
  one.lent_now = false;
  if (place.empty() || state.find(place.size()) != nullptr) return;
  state.sizes.push_back({place.size(), {}, {}});
  std::sort(state.sizes.begin(), state.sizes.end(),
            [](const State::Size& a, const State::Size& b) { return a.bytes < b.bytes; });
}

bool PlaceLender::begin() {
  const void* backward = current_backward();
  if (state_->backward == backward) {
    LendingAllocator::serve(state_);  // another model's output may have come in between
    return false;
  }
  state_->backward = backward;
  for (State::Size& size : state_->sizes) size.made.clear();
  for (State::Place& place : state_->places) place.lent_now = false;
  LendingAllocator::serve(state_);
  return true;
}

void PlaceLender::end() {
  state_->backward = nullptr;
  if (LendingAllocator::serves(state_)) LendingAllocator::serve(nullptr);
}

void PlaceLender::came(std::size_t parameter, const void* data, bool is_new) {
  State& state = *state_;
  State::Place& place = state.places[parameter];
  State::Size* size = state.find(place.bytes.size());
  if (size == nullptr || state.backward == nullptr) return;
  // The last one counts: memory that was freed in this backward may have been given out again.
  const auto found = std::find(size->made.rbegin(), size->made.rend(), data);
  const std::size_t turn =
      found == size->made.rend() ? State::kNone : static_cast<std::size_t>(size->made.rend() - found - 1);
  if (place.turn == turn || (turn == State::kNone && !is_new)) return;
  if (place.turn != State::kNone && size->parameters[place.turn] == parameter)
    size->parameters[place.turn] = State::kNone;
  place.turn = turn;
  if (turn == State::kNone) return;
  if (size->parameters.size() <= turn) size->parameters.resize(turn + 1, State::kNone);
  size->parameters[turn] = parameter;
}

bool PlaceLender::is_lent(std::size_t parameter) const {
  return state_->places[parameter].out->load(std::memory_order_acquire);
}

bool PlaceLender::was_lent_now(std::size_t parameter) const { return state_->places[parameter].lent_now; }

}  // namespace lockstep::parallel
