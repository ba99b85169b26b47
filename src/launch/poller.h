// Poller: epoll(7) with a small key for each descriptor. Level-triggered. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "base/clock.h"
#include "base/fd.h"

namespace gyre::launch {

enum class Source : uint32_t {
  kRank,
  kGuard,
  kSignals,
  kStream,
  kSink,
  kHostOutput,   // what a remote shell writes: frames
  kHostInput,    // it takes more
  kHostError,    // its standard error
  kHostProcess,  // it has ended
  kInput,        // standard input, or that of the rank that reads it
  kReports,      // what ranks say of their work
  kTool,         // what takes stacks has something to say
};

struct PollKey {
  Source source{};
  uint32_t index = 0;  // of the rank, stream, sink or host
};

inline constexpr size_t kReadBytes = size_t{64} << 10;  // at once, of a stream that is readable

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
