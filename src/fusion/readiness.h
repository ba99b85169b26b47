// Readiness: which gradients of a step are there, and which buckets are full. Pure.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "fusion/plan.h"

namespace gyre::fusion {

// Claim, Arrive, Complete, full and remaining may be called from any thread; everything else needs the object to
// itself. Nothing but Follow and the lists allocates.
class Readiness {
 public:
  explicit Readiness(int tensors);

  // From now on buckets are those of `plan`, all empty. REQUIRES: it is for as many tensors.
  void Follow(const Plan& plan);

  // A new step: all buckets are empty.
  void Restart();

  // The caller is about to put the tensor's gradient in its place. False: somebody has done so in this step.
  bool Claim(int tensor);

  // It is there but for what is done once for its bucket, when all of that has come: by the caller that is given its
  // tensors, before it completes its own; all others are given none. For who has something to do then: nothing else
  // depends on it. REQUIRES: this thread has claimed the tensor, which is not complete.
  std::span<const int> Arrive(int tensor);

  struct Completion {
    bool filled;      // this has filled the tensor's bucket
    bool first_full;  // the first bucket is full
    bool last;        // this was the last tensor
  };

  // It is in its place. Once the last tensor is complete, another thread may restart or destroy this object, so a
  // thread must not touch it after its Complete, but for the one that waits. REQUIRES: this thread has claimed the
  // tensor.
  Completion Complete(int tensor);

  // What Complete's callers did before it for the bucket's tensors, the caller now sees.
  bool full(int bucket) const { return missing_[static_cast<size_t>(bucket)].load(std::memory_order_seq_cst) == 0; }

  int remaining() const { return remaining_.load(std::memory_order_seq_cst); }  // tensors that are not complete

  bool claimed(int tensor) const { return tickets_[static_cast<size_t>(tensor)].load() != 0; }

  // Tensors of this bucket that are not claimed.
  std::vector<int> Absent(int bucket) const;

  // All tensors in the order in which they were claimed.
  std::vector<int> Order() const;

 private:
  const int tensors_;
  std::vector<int> bucket_of_;                 // by tensor
  std::vector<std::vector<int>> members_;      // by bucket
  std::vector<std::atomic<int64_t>> tickets_;  // by tensor: when it was claimed, 1, 2, ...; 0: not yet
  std::vector<std::atomic<int>> awaited_;      // by bucket: tensors that have not arrived
  std::vector<std::atomic<int>> missing_;      // by bucket: tensors that are not complete
  std::atomic<int64_t> next_ticket_{1};
  std::atomic<int> remaining_;
};

}  // namespace gyre::fusion
