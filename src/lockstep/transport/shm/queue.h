// A queue in shared memory with one producer and one consumer.
//
// It is a ring of 64-byte cells, the size of a cache line. A record is a header of 32 bytes and then its payload. The
// first 32 bytes of the payload share the header's cell, so a small message moves between the cores in one cache line.
// The header's first word says how many cells the record takes; it is 0 until the record is complete. Before the
// producer publishes a record, it clears the first word of the cell behind it, so that the consumer never takes old
// bytes for a header.
//
//   | H p | p p | H p | 0 ...      H header, p payload, 0 where the consumer will look next
//
// A record with a label (transport.h) has it at the beginning of the payload.
//
// A record does not wrap around. If it would, a `skip` record first fills the ring up to its end.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <span>

#include "lockstep/transport.h"
#include "lockstep/types.h"

namespace lockstep::transport::shm {

constexpr std::size_t kCellBytes = 64;

enum class RecordKind : std::uint8_t {
  piece,  // some bytes of a message
  offer,  // a message that waits in the sender's memory
  skip,   // no message; the next record is at the beginning of the ring
};

struct Record {
  std::atomic<std::uint32_t> cells;  // number of cells of the record; 0 until the record is complete
  Tag tag;
  std::uint64_t total;    // bytes of the message
  std::uint64_t address;  // for an offer: where the message lies in the sender's memory
  std::uint32_t piece;    // bytes of the message in this record
  RecordKind kind;
  bool labelled;
  std::uint16_t slot;  // for an offer: its transfer slot
  std::byte payload[32];

  Label label() const {
    Label found;
    if (labelled) std::memcpy(&found, payload, sizeof found);
    return found;
  }
  const std::byte* data() const { return payload + (labelled ? sizeof(Label) : 0); }
};
static_assert(sizeof(Record) == kCellBytes);

// What both sides share besides the cells.
struct QueueControl {
  alignas(
      kCellBytes) std::atomic<std::uint64_t> head;  // cells that the consumer has freed since the start; it writes this
  alignas(kCellBytes) std::atomic<std::uint32_t> starved;  // set while the producer waits for room in the ring
};

class Producer {
 public:
  Producer(QueueControl* control, Record* cells, std::size_t count) : control_(control), cells_(cells), count_(count) {}

  // The largest payload of one record: a quarter of the ring, so that several records are in flight.
  std::size_t max_piece() const { return count_ / 4 * kCellBytes - sizeof(Record); }

  // The header of a record, without `cells`.
  struct Header {
    RecordKind kind;
    Tag tag;
    std::uint64_t total;
    std::uint64_t address = 0;
    std::uint16_t slot = 0;
    const Label* label = nullptr;  // null if there is no label
  };
  // Appends a record. Returns false if there is no room.
  bool push(const Header& header, ConstBytes payload) {
    const std::size_t bytes = payload.size() + (header.label != nullptr ? sizeof(Label) : 0);
    const std::size_t extra = bytes > sizeof(Record::payload) ? bytes - sizeof(Record::payload) : 0;
    const std::size_t need = 1 + (extra + kCellBytes - 1) / kCellBytes;
    const std::size_t to_end = count_ - at(tail_);
    if (need > to_end) {  // the record would wrap around
      if (!room_for(to_end + need)) return false;
      publish(cells_[at(tail_)], {RecordKind::skip, 0, 0}, {}, to_end);
    } else if (!room_for(need)) {
      return false;
    }
    publish(cells_[at(tail_)], header, payload, need);
    return true;
  }

  // Called before the last attempt to push that precedes a sleep, so that a consumer that frees cells after that
  // attempt sees the flag.
  void set_starved(bool starved) {
    control_->starved.store(starved ? 1 : 0, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_seq_cst);
  }

 private:
  std::size_t at(std::uint64_t position) const { return position & (count_ - 1); }
  // The record needs one more cell: the one behind it, which is cleared.
  bool room_for(std::size_t need) {
    if (tail_ + need + 1 - head_seen_ <= count_) return true;
    head_seen_ = control_->head.load(std::memory_order_acquire);
    return tail_ + need + 1 - head_seen_ <= count_;
  }
  void publish(Record& record, const Header& header, ConstBytes payload, std::size_t need) {
    record.tag = header.tag;
    record.total = header.total;
    record.address = header.address;
    record.piece = static_cast<std::uint32_t>(payload.size());
    record.kind = header.kind;
    record.slot = header.slot;
    record.labelled = header.label != nullptr;
    if (header.label != nullptr) std::memcpy(record.payload, header.label, sizeof(Label));
    // The payload runs on into the next cells.
    if (!payload.empty()) std::memcpy(const_cast<std::byte*>(record.data()), payload.data(), payload.size());
    cells_[at(tail_ + need)].cells.store(0, std::memory_order_relaxed);
    record.cells.store(static_cast<std::uint32_t>(need), std::memory_order_release);
    tail_ += need;
  }

  QueueControl* control_;
  Record* cells_;
  std::size_t count_;  // a power of two
  std::uint64_t tail_ = 0;
  std::uint64_t head_seen_ = 0;
};

class Consumer {
 public:
  Consumer(QueueControl* control, Record* cells, std::size_t count) : control_(control), cells_(cells), count_(count) {}

  // The oldest record, or null if there is none. Valid until pop().
  Record* front() {
    Record* record = &cells_[head_ & (count_ - 1)];
    if (record->cells.load(std::memory_order_acquire) == 0) return nullptr;
    if (record->kind != RecordKind::skip) return record;
    pop();
    return front();
  }
  void pop() {
    head_ += cells_[head_ & (count_ - 1)].cells.load(std::memory_order_relaxed);
    control_->head.store(head_, std::memory_order_release);
  }
  bool producer_starved() const { return control_->starved.load(std::memory_order_relaxed) != 0; }

  static ConstBytes payload(const Record& record) { return {record.data(), record.piece}; }

 private:
  QueueControl* control_;
  Record* cells_;
  std::size_t count_;
  std::uint64_t head_ = 0;
};

}  // namespace lockstep::transport::shm
