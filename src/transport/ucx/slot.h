// What an exchange keeps of a line, beside the line.
#pragma once

#include <optional>
#include <string>

#include "base/clock.h"
#include "transport/ucx/exchange.h"
#include "transport/ucx/line.h"

namespace gyre::ucx {

struct Exchange::Slot {
  Slot(uint64_t channel, int peer, uint64_t number) : line(channel, peer), order(number) {}

  Line line;
  const uint64_t order;                    // in which slots were made
  Bell* bell = nullptr;                    // null: nobody uses it
  bool left = false;                       // who used it has left; it waits for the peer's end, and drops what comes
  bool spoilt = false;                     // a message was lost
  std::optional<TimePoint> reading_ended;  // when that was found first
  std::optional<TimePoint> writing_ended;
};

}  // namespace gyre::ucx
