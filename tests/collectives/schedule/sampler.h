// Sampler: what single elements hold in the end, of collectives among more ranks than anything runs. Goes backwards
// from the element through the steps that made it, and only through those: no buffers, no other blocks.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/statusor.h"
#include "collectives/schedule/schedule.h"

namespace gyre::internal {

class Sampler {
 public:
  // `blocks`: the only ones to be looked at; none: all, of the ranks that matter.
  Sampler(std::function<Schedule(int rank)> make, int ranks, const std::vector<int>& blocks);

  // What the element has before the first step: another number everywhere, so that no sum of some is that of others.
  static uint64_t Input(int rank, int block);

  // The sum, modulo 2^64, or the input that the element is in the end. The error says which message has no sender, or
  // one that sends another block, or that steps need each other's results.
  absl::StatusOr<uint64_t> ValueAt(int rank, int block);

 private:
  static constexpr int kNone = -1;

  // A step on one of the blocks, and what the element is after it.
  struct Record {
    Step step;
    int rank;
    int in_stream;         // the how many-th of its direction with its peer
    int previous = kNone;  // on the same block
    enum class State : uint8_t { kUnknown, kOpen, kKnown } state = State::kUnknown;
    uint64_t value = 0;
  };
  struct Range {
    int first = kNone;
    int last = kNone;  // behind it
  };

  const Range& Load(int rank);
  int LastOn(int rank, int block);
  absl::StatusOr<int> SendOf(const Record& receive);
  absl::StatusOr<std::vector<int>> Needed(const Record& record);
  absl::Status Evaluate(int record);
  uint64_t Before(const Record& record) const;
  Record& At(int record) { return records_[static_cast<size_t>(record)]; }

  const std::function<Schedule(int rank)> make_;
  std::vector<bool> is_looked_at_;  // by block; none: all
  std::vector<Record> records_;
  std::vector<Range> loaded_;          // by rank
  std::vector<int> sends_, receives_;  // by peer, of the rank that is being loaded
};

}  // namespace gyre::internal
