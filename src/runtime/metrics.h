// Metrics: counters of calls, and their text for Prometheus (exposition format 0.0.4).
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <string>

#include "collectives/observer.h"

namespace gyre::internal {

// Thread-safe.
class Metrics {
 public:
  // `size`: ranks of the job; `host`: the number of this rank's.
  Metrics(int rank, int size, int host) : rank_(rank), size_(size), host_(host) {}

  void Count(const Observed& observed);

  std::string Text() const;

 private:
  struct alignas(64) Counters {
    std::atomic<int64_t> calls{0}, failures{0}, bytes{0}, nanoseconds{0};
  };

  const int rank_, size_, host_;
  std::array<Counters, kActivities> counters_;
};

}  // namespace gyre::internal
