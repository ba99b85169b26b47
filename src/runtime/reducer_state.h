// GradientReducer's inside: see gyre/reducer.h for what it promises.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/process_mark.h"
#include "fusion/gradients.h"
#include "fusion/gradients_on_gpu.h"
#include "fusion/plan.h"
#include "fusion/planner.h"
#include "fusion/readiness.h"
#include "fusion/ready_times.h"
#include "fusion/registry.h"
#include "fusion/rows.h"
#include "fusion/tuner.h"
#include "gyre/reducer.h"
#include "runtime/composition.h"
#include "runtime/compressor.h"
#include "runtime/gradient_step.h"
#include "runtime/row_exchange.h"
#include "runtime/rows_on_gpu.h"

namespace gyre {

class GradientReducer::State : public std::enable_shared_from_this<State> {
 public:
  State(std::unique_ptr<Communicator> communicator, const ReducerOptions& options,
        internal::CompressionRequest compression);
  ~State();

  absl::StatusOr<int> Register(std::string_view name, std::span<const int64_t> shape, DType dtype,
                               const Device& device);
  absl::StatusOr<int> RegisterRows(std::string_view name, std::span<const int64_t> shape, DType dtype,
                                   const Device& device);
  absl::Status Start();
  TensorView gradient(int index) const;
  TensorView result(int index) const;
  absl::Status Give(int index, const TensorView* view, bool zeros);
  absl::Status GiveRows(int index, const RowsView& rows);
  RowsView result_rows(int index) const;
  absl::Status ScatterRows(int index, TensorView dense) const;
  absl::StatusOr<bool> WaitFor(int index);
  absl::StatusOr<StepSummary> Wait();

  // The reducer is destroyed: ends what is under way, so that nothing touches the program's memory any more.
  void Close();

  const Compression& compression() const { return compression_.compression; }
  bool carries_momentum(int index) const;
  std::vector<std::byte> SaveCompression() const;
  absl::Status RestoreCompression(std::span<const std::span<const std::byte>> saved);

  Communicator& communicator() const { return *communicator_; }
  const ProcessMark& process() const { return ranks_->process(); }
  int size() const { return registry_.size(); }
  bool planned() const { return planned_; }
  std::string plan() const { return fusion::ToText({tensors_, plan_}); }

 private:
  // A piece of the arena.
  struct Memory {
    std::shared_ptr<internal::Arena> arena;
    std::byte* data = nullptr;
  };

  // Other plans are tried.
  struct Tuning {
    Tuning(std::vector<fusion::Plan> those, const fusion::Tuner& which, int first)
        : plans(std::move(those)), tuner(which), followed(first) {}

    const std::vector<fusion::Plan> plans;  // by cost, from the finest to the coarsest, then by size likewise
    fusion::Tuner tuner;
    int followed;                                   // plan
    std::atomic<Duration::rep> first_gradient = 0;  // when it came in this step; 0: not yet
  };

  std::string DescribeOptions(const absl::StatusOr<fusion::SavedPlan>& saved) const;
  absl::Status MakeFirstPlan(const absl::StatusOr<fusion::SavedPlan>& saved);
  absl::Status Allocate(int64_t bytes);
  absl::Status MakeGradients(const fusion::Layout& layout);
  absl::StatusOr<std::shared_ptr<internal::CodecDevice>> MakeCodecDevice() const;
  absl::Status CheckRegistration(std::string_view name, const Device& device) const;
  absl::Status MakeCompressor();
  std::unique_ptr<internal::RowExchange> MakeRowExchange() const;
  absl::Status MakeRowsOnGpu(const std::shared_ptr<device::Gpu>& gpu);
  std::vector<internal::GradientStep::RowPart> MakeRowParts(const std::vector<fusion::Part>& parts) const;
  absl::Status CheckIndex(int index) const;
  absl::Status Claim(int place);
  void Complete(int place);
  bool TakeLaunch(int64_t attempt);
  void Follow(fusion::Plan plan);
  // How it plans; after MakeCompressor. When a GPU has a gradient ready, the host does not know.
  bool by_cost() const { return !forced_bytes_ && compressor_ == nullptr && on_gpu_ == nullptr; }
  int64_t bucket_bytes() const {
    return forced_bytes_.value_or(internal::DefaultBucketBytes(compression_, communicator_->node_count()));
  }
  absl::Status PrepareToPlan();
  absl::Status PlanAfterStep(StepSummary& summary);
  absl::Status PlanBySizes(StepSummary& summary);
  absl::Status PlanByCosts(StepSummary& summary);
  absl::Status TuneAfterStep(StepSummary& summary);
  void Settle();
  absl::Status CaptureGraphs(StepSummary& summary);
  absl::Status TryCaptures(const std::vector<const fusion::Part*>& parts);
  absl::Status CapturePart(const fusion::Part& part, TimePoint deadline, absl::Status& own);
  void DropGraphs();
  void NoteFirstGradient();
  absl::Status CheckUsable() const;
  absl::Status Fail(absl::Status status);
  absl::Status FinishResults(StepSummary& summary);
  absl::Status FinishOnGpu(StepSummary& summary);
  absl::Status LookOnGpu(StepSummary& summary);
  bool NeedsAll(int place) const;
  void NoteNeeds(int place);
  absl::Status ReduceUntil(int place);
  absl::Status Reduce();
  absl::Status EndWait(absl::Status status, std::chrono::steady_clock::time_point begin);
  std::string NameOf(int place) const;
  CallOptions call_options() const { return {.timeout = timeout_}; }
  double postscale() const {
    return options_.op == ReduceOp::kAverage ? options_.postscale / options_.accumulate : options_.postscale;
  }

  const std::unique_ptr<Communicator> communicator_;
  const std::shared_ptr<internal::CommunicatorState> ranks_;  // the communicator's
  const ReducerOptions options_;
  const std::chrono::milliseconds timeout_;
  const internal::CompressionRequest compression_;
  const std::optional<int64_t> forced_bytes_;  // of buckets: by options or environment
  fusion::Registry registry_;
  std::vector<Device> devices_;                               // by index
  std::vector<std::pair<int, fusion::RowShape>> row_shapes_;  // by index: of those that are given as rows

  // From Start on.
  bool begun_ = false;
  std::vector<fusion::TensorInfo> tensors_;  // by place (fusion::Registry)
  std::vector<int> places_;                  // by index
  Memory memory_;
  fusion::Plan plan_;
  bool planned_ = false;
  bool in_nccl_memory_ = false;                        // on a GPU: the buckets are, on all ranks
  bool graphs_due_ = false;                            // on a GPU: a step by the plan that stays is captured at its end
  fusion::CostModel cost_;                             // where it plans by cost
  std::unique_ptr<fusion::ReadyTimes> ready_times_;    // likewise, until the plan stays
  std::unique_ptr<fusion::ReadyTimes> need_times_;     // likewise, without what waits took
  std::vector<bool> needed_;                           // by place: in this step its need was noted
  std::unique_ptr<Tuning> tuning_;                     // from the plan by cost on, until the plan stays
  std::chrono::steady_clock::time_point step_begins_;  // the end of the Wait before
  std::unique_ptr<fusion::Gradients> gradients_;
  fusion::GradientsOnGpu* on_gpu_ = nullptr;  // the same; null: they are on the host
  std::shared_ptr<void> graphs_turn_;         // on the GPU, from when it tries to capture: Gpus::TakeTurnOfGraphs
  std::unique_ptr<internal::RowExchange> rows_;
  std::unique_ptr<internal::RowsOnGpu> rows_on_gpu_;  // null: there are none there
  std::unique_ptr<fusion::Readiness> readiness_;
  CompressionUse compression_use_ = CompressionUse::kNotAsked;
  std::unique_ptr<internal::Compressor> compressor_;  // null: all goes dense
  std::unique_ptr<internal::GradientStep> step_;
  int64_t steps_ = 0;                        // that were reduced
  std::chrono::duration<double> waited_{0};  // in this step, by WaitFor and Wait
  std::optional<StepSummary> finished_;      // this step's, once all results are there
  std::atomic<bool> started_{false};         // Start was OK
  // Every Wait ends an attempt. Who raises launched_ from the one before to this one is who starts the operation.
  std::atomic<int64_t> attempt_{1};
  std::atomic<int64_t> launched_{0};
  std::atomic<bool> failed_{false};
  absl::Status failure_;  // written before failed_
};

}  // namespace gyre
