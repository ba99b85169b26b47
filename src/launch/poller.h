// Poller: epoll(7) with a small key for each descriptor. Level-triggered. Not thread-safe.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "base/clock.h"
#include "base/fd.h"

namespace gyre::launch {

enum class Source : uint32_t { kRank, kGuard, kSignals, kStream, kSink };

struct PollKey {
  Source source{};
  uint32_t index = 0;  // of the rank, stream or sink
};

class Poller {
 public:
  absl::Status Open();
  absl::Status AddReadable(int fd, PollKey key) { return Add(fd, key, false); }
  absl::Status AddWritable(int fd, PollKey key) { return Add(fd, key, true); }
  void Remove(int fd);

  // What is ready, in the order in which it became so, as far as the kernel keeps it. Blocks until something is, or
  // `milliseconds` have passed (-1: for ever).
  std::vector<PollKey> Wait(int milliseconds);

 private:
  absl::Status Add(int fd, PollKey key, bool writable);

  UniqueFd fd_;
};

}  // namespace gyre::launch
