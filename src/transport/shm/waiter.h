// Waiting for other ranks: spin, then yield, then sleep on the doorbell.
#pragma once

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "base/clock.h"
#include "transport/shm/control_block.h"
#include "transport/shm/cpu.h"

namespace gyre::shm {

// How long a wait spins and yields before it sleeps. A cross-CPU wake-up costs tens of microseconds, so short waits
// must not sleep; a spinning rank whose peer has no CPU only steals time from it, so where the host's ranks outnumber
// their CPUs nothing spins.
struct WaitPolicy {
  std::chrono::nanoseconds spin{20'000};
  std::chrono::nanoseconds yield{100'000};

  static WaitPolicy Spinning() { return {}; }
  static WaitPolicy Crowded() { return {.spin = std::chrono::nanoseconds(0), .yield = std::chrono::microseconds(200)}; }
  // For background threads, which must not take cycles from computation.
  static WaitPolicy Background() {
    return {.spin = std::chrono::nanoseconds(0), .yield = std::chrono::microseconds(20)};
  }
};

// What one look at the awaited thing found.
enum class Progress { kNone, kSome, kDone };

// Sleeps until the doorbell rings after `rings` was read, or `at_most` has passed, or for no reason.
void SleepOnDoorbell(Doorbell& doorbell, uint32_t rings, std::chrono::nanoseconds at_most);

// Calls poll() until it returns kDone; kSome starts the backing off anew. Calls check(now), which ends the wait by
// returning true (deadline, lost peer), between looks that found nothing, outside the spinning phase, and about every
// millisecond while poll() makes progress. Sleeps by sleep(rings, at_most), like SleepOnDoorbell, until deadline() at
// most, which is asked after check() has been. A wait that ends in the first looks, or with the second step of
// progress, reads no clock.
template <typename Poll, typename Check, typename Deadline, typename Sleep>
void Await(Doorbell& doorbell, const WaitPolicy& policy, Poll&& poll, Check&& check, Deadline&& deadline,
           Sleep&& sleep) {
  constexpr int kLooksPerClockRead = 64;
  constexpr int kLooksWithoutPause = 10;  // well under a microsecond: a pause costs as much as a line's way across
  // Even without a deadline in sight check() must see, now and then, what nobody rings for.
  constexpr std::chrono::nanoseconds kShortestSleep = std::chrono::microseconds(100);
  constexpr std::chrono::nanoseconds kLongestSleep = std::chrono::milliseconds(50);
  int steps = 0;
  TimePoint checked{};
  const auto ends_amid_progress = [&] {
    if (++steps == 1) return false;
    const TimePoint now = std::chrono::steady_clock::now();
    if (now - checked < std::chrono::milliseconds(1)) return false;
    checked = now;
    return check(now);
  };
  for (;;) {
    Progress found = poll();
    // Spin without a look at the clock at first: most waits of a tuned loop end within a microsecond.
    TimePoint start{};
    for (int looks = 1; found == Progress::kNone && policy.spin.count() > 0; ++looks) {
      if (looks > kLooksWithoutPause) CpuRelax();
      found = poll();
      if (looks % kLooksPerClockRead == 0) {
        const TimePoint now = std::chrono::steady_clock::now();
        if (start == TimePoint{}) start = now;
        if (now - start > policy.spin) break;
      }
    }
    if (found == Progress::kNone) start = std::chrono::steady_clock::now();
    while (found == Progress::kNone) {
      const TimePoint now = std::chrono::steady_clock::now();
      if (check(now)) return;
      if (now - start > policy.yield) break;
      sched_yield();
      found = poll();
    }
    while (found == Progress::kNone) {
      doorbell.sleepers.fetch_add(1, std::memory_order_seq_cst);
      const uint32_t rings = doorbell.rings.load(std::memory_order_seq_cst);
      found = poll();
      const TimePoint now = std::chrono::steady_clock::now();
      const bool end = found == Progress::kNone && check(now);
      if (found == Progress::kNone && !end) {
        const std::chrono::nanoseconds left = deadline() - now;
        sleep(rings, std::clamp(left, kShortestSleep, kLongestSleep));
      }
      doorbell.sleepers.fetch_sub(1, std::memory_order_seq_cst);
      if (end) return;
      if (found == Progress::kNone) found = poll();
    }
    if (found == Progress::kDone || ends_amid_progress()) return;
  }
}

// The same, sleeping on the doorbell alone.
template <typename Poll, typename Check, typename Deadline>
void Await(Doorbell& doorbell, const WaitPolicy& policy, Poll&& poll, Check&& check, Deadline&& deadline) {
  Await(doorbell, policy, poll, check, deadline,
        [&](uint32_t rings, std::chrono::nanoseconds at_most) { SleepOnDoorbell(doorbell, rings, at_most); });
}

}  // namespace gyre::shm
