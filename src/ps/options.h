// What a parameter server and its workers agree on.
#pragma once

#include <chrono>
#include <cstdint>

#include "base/clock.h"

namespace gyre::ps {

// When a worker may go on to step c, beside that its own pushes are in:
//   kSynchronous   every worker's push of each step before c is in (BSP); a step's gradients are averaged
//   kStale         every worker's pushes before c - bound are in (SSP: Ho et al., NIPS 2013, section 2); applied one by
//   one kAsynchronous  at once; applied one by one as they come
enum class Mode : uint8_t { kSynchronous, kStale, kAsynchronous };

struct Consistency {
  Mode mode = Mode::kSynchronous;
  uint64_t bound = 0;  // of kStale, in steps
};

struct Timing {
  Duration heartbeat = std::chrono::milliseconds(100);  // how often each side shows that it lives
  Duration timeout = std::chrono::seconds(1);           // silence after which the other side counts as away
  Duration resend = std::chrono::milliseconds(500);     // what got no answer for so long is sent again
};

// Each keeps a fault from doing harm. Tests switch one off to see that they would notice its absence.
struct Guards {
  bool duplicates = true;  // a push that was applied is not applied again
  bool fence = true;       // a process that was replaced is not listened to
  bool heartbeat = true;   // a silent worker is waited for no longer
  bool forward = true;     // the next server gets the gradients that this one was pushed
  bool confirm = true;     // a push is acknowledged once the next server has it
};

}  // namespace gyre::ps
