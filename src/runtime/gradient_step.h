// GradientStep: one step's reduction as one operation: the parts of a plan, one call after the other, each as soon as
// its bucket is full, and the bucket's row gradients behind its parts. It is queued once a step and used again in the
// next, so that a step allocates nothing.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "collectives/call.h"
#include "collectives/hierarchical/allreduce.h"
#include "collectives/lane.h"
#include "collectives/shm/allreduce.h"
#include "fusion/gradients.h"
#include "fusion/layout.h"
#include "fusion/readiness.h"
#include "runtime/call_sequence.h"
#include "runtime/composition.h"
#include "runtime/compressor.h"
#include "runtime/row_exchange.h"
#include "runtime/rows_on_gpu.h"

namespace gyre::internal {

class GradientStep final : public Pollable {
 public:
  // How every part is reduced.
  struct Settings {
    ReduceOp op;
    double prescale;
    double postscale;
    std::chrono::milliseconds timeout;
    Compressor* compressor = nullptr;  // outlives it; null: all goes dense
    RowExchange* rows = nullptr;       // outlives it; null: there are none
    RowsOnGpu* rows_on_gpu = nullptr;  // likewise: where their values are
    bool same_place = false;           // GpuManner::same_place
  };

  // The row gradients of a bucket.
  struct RowPart {
    int bucket;
    size_t before;  // of the parts: the one that follows it
    std::vector<int> tensors;
  };

  // All must outlive it.
  GradientStep(const CommunicatorState& communicator, fusion::Gradients& gradients, const fusion::Readiness& readiness,
               const Settings& settings);

  // From now on these are the parts. `rows`: in the order of the parts that they follow. REQUIRES: not queued.
  void Follow(std::vector<fusion::Part> parts, std::vector<RowPart> rows);
  const std::vector<fusion::Part>& parts() const { return parts_; }
  const Settings& settings() const { return settings_; }

  // "step 7, gradients "a", "b"": this step's.
  std::string NameOf(const fusion::Part& part) const { return NameOf("gradients", part.tensors); }

  // What reduces a part that goes dense: its gradients are in `buffer`.
  Call CallOn(const TensorView& buffer) const;

  // Ready to be queued again, as the step of this number. REQUIRES: done, or it was never queued.
  void Restart(int64_t number);

  // The program waits: from now on gradients that are not ready are late. By turns with LeaveOff, which says that it
  // waits no longer: they have time again.
  void Await() { waits_.store(waits_.load() | 1); }
  void LeaveOff() { waits_.store(waits_.load() + 1); }

  // Whether the tensor's result is there, in this step. Thread-safe. REQUIRES: it is not given as rows.
  bool Has(int tensor) const { return delivered_.load() >= complete_at_[static_cast<size_t>(tensor)]; }

  // Whether Nudge is to be called, besides, with every part that is delivered: for a thread that waits for Has.
  // Thread-safe.
  void TellOfParts(bool tell) { tells_of_parts_.store(tell); }

  // Ends it early, here and on every rank. Thread-safe.
  void Abandon(const std::string& why);

  // Since Restart: of the communicator's ranks the one that this one waited for longest before its calls could begin,
  // -1 for none, and how long. REQUIRES: done.
  struct Waited {
    int rank;
    Duration time;
  };
  Waited longest_wait() const;

  // Wakes whoever drives it: a bucket is full. Thread-safe.
  void Nudge() const;

  Lane& lane() const;

  // Pollable.
  shm::Progress Poll() override;
  bool Check(TimePoint now) override;
  void StartClock(TimePoint) override {}  // waits for the program have no deadline until Await
  // A GPU rings no bell: who waits for it is to look again soon.
  TimePoint deadline() const override { return waits_for_gpu_.load() ? TimePoint{} : own_deadline(); }
  bool AddWaits(std::vector<pollfd>& waits) const override;

 private:
  const RowPart* RowsDue() const;
  bool WaitsForAll() const;
  bool MayLaunch(size_t part) const;
  bool MayLaunchNext();
  bool RowsThere(const RowPart& rows);
  bool LookedAtAll();
  absl::StatusOr<bool> LookAtAll();
  void NoteWait(shm::Progress progress);
  bool PrepareLater();
  absl::Status Launch();
  absl::Status LaunchPart();
  bool Deliver();
  void TellObserver(const absl::Status& status) const;
  bool End(absl::Status status);
  bool CheckOwn(TimePoint now);
  void WarnIfLate(TimePoint now);
  std::string Awaited();
  bool FailLate();
  void Break(const absl::Status& status);
  TimePoint own_deadline() const { return TimePoint(Duration(deadline_.load(std::memory_order_relaxed))); }
  void SetDeadline(TimePoint at) { deadline_.store(at.time_since_epoch().count(), std::memory_order_relaxed); }
  std::string NameOf(std::string_view what, const std::vector<int>& tensors) const;
  std::string NameOfNext() const;
  std::string Absent() const;
  Group& group() const { return *communicator_.group(); }

  const CommunicatorState& communicator_;
  fusion::Gradients& gradients_;
  const fusion::Readiness& readiness_;
  const Settings settings_;
  std::vector<fusion::Part> parts_;
  std::vector<RowPart> row_parts_;
  int64_t number_ = 0;
  size_t next_ = 0;                                  // part
  size_t next_rows_ = 0;                             // row part
  std::optional<AllReduce> within_host_;             // the call in course, or
  std::optional<HierarchicalAllReduce> over_hosts_;  // likewise
  std::shared_ptr<Pollable> on_gpu_;                 // likewise
  SequenceCall* compressed_ = nullptr;               // likewise, the compressor's
  std::optional<SequenceCall> rows_;                 // likewise, of row gradients
  Pollable* call_ = nullptr;                         // which of them
  TimePoint launched_;                               // when that was
  TimePoint waits_since_{};                          // between calls; not set: from the next check on
  TimePoint quiet_until_{};                          // no warning before
  int missing_ = -1;                                 // rank that the call in course waits for, to begin
  TimePoint missing_since_{};                        // likewise
  std::vector<Duration> waited_;                     // by rank
  std::vector<size_t> complete_at_;                  // by tensor: after how many parts it is whole
  std::atomic<size_t> delivered_{0};                 // parts
  std::atomic<bool> tells_of_parts_{false};
  bool ended_ = false;
  size_t prepared_ = 0;                     // parts, ahead of their launch: all or none
  std::atomic<bool> waits_for_gpu_{false};  // for rows that are on their way to the host, or a look at all gradients
  absl::Status failure_;                    // of that
  std::atomic<uint32_t> waits_{0};          // odd while the program waits, another number for each wait
  uint32_t seen_waits_ = 0;
  std::atomic<Duration::rep> deadline_{TimePoint::max().time_since_epoch().count()};
};

}  // namespace gyre::internal
