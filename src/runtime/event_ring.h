// EventRing: events from many threads to one, through a ring of fixed size. After D. Vyukov's bounded queue: a cell's
// turn number says whether it is free for the writer, or full for the reader, of that turn.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <vector>

#include "collectives/observer.h"

namespace gyre::internal {

struct Event {
  Observed observed{};
  int thread = 0;  // that told of it
};

class EventRing {
 public:
  // REQUIRES: `room` is a power of two.
  explicit EventRing(uint64_t room) : mask_(room - 1), cells_(room) {
    for (uint64_t i = 0; i < room; ++i) cells_[i].turn.store(i);
  }

  // From any thread, without locks and memory. False, and counted, if there is no room.
  bool Push(const Event& event) {
    uint64_t place = head_.load(std::memory_order_relaxed);
    while (true) {
      Cell& cell = cells_[place & mask_];
      const auto ahead = static_cast<int64_t>(cell.turn.load(std::memory_order_acquire) - place);
      if (ahead < 0) {
        dropped_.fetch_add(1);
        return false;
      }
      if (ahead == 0 && head_.compare_exchange_weak(place, place + 1)) {
        cell.event = event;
        cell.turn.store(place + 1, std::memory_order_release);
        return true;
      }
      if (ahead > 0) place = head_.load(std::memory_order_relaxed);
    }
  }

  // By one thread at a time.
  std::optional<Event> Pop() {
    Cell& cell = cells_[tail_ & mask_];
    if (cell.turn.load(std::memory_order_acquire) != tail_ + 1) return std::nullopt;
    const Event event = cell.event;
    cell.turn.store(tail_ + mask_ + 1, std::memory_order_release);
    ++tail_;
    return event;
  }

  int64_t dropped() const { return dropped_.load(); }

 private:
  struct Cell {
    std::atomic<uint64_t> turn{0};
    Event event;
  };

  const uint64_t mask_;
  std::vector<Cell> cells_;
  alignas(64) std::atomic<uint64_t> head_{0};
  alignas(64) uint64_t tail_ = 0;
  std::atomic<int64_t> dropped_{0};
};

}  // namespace gyre::internal
