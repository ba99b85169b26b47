// How a GradientReducer comes to the plan that stays.
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "base/status.h"
#include "runtime/reducer_agreement.h"
#include "runtime/reducer_planning.h"
#include "runtime/reducer_state.h"

namespace gyre {

namespace {

// The order of readiness is taken from step 2, times from as many steps as it takes for a median: the first one warms
// up.
constexpr int64_t kFirstRecorded = 2, kLastTimed = 4;

// Of the plans that are tried; 1 is the one without trials. Neighbours differ by enough to tell.
constexpr std::array<double, 1> kPlanned = {1};
constexpr std::array<double, 5> kTried = {0.25, 0.5, 1, 2, 4};

// Of buckets that are filled up to one size, which are tried after them.
constexpr std::array<int64_t, 3> kTriedBytes = {4 << 20, 8 << 20, 16 << 20};

// In the order of readiness: the same on all ranks, if the times are.
std::vector<fusion::Plan> PlansBySize(std::span<const fusion::TensorInfo> tensors, std::span<const double> ready) {
  std::vector<int> order(tensors.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, {}, [&](int tensor) { return ready[static_cast<size_t>(tensor)]; });
  std::vector<fusion::Plan> plans;
  for (const int64_t bytes : kTriedBytes) plans.push_back(PlanBySize(tensors, order, bytes));
  const auto [first_double, end] = std::ranges::unique(plans);
  plans.erase(first_double, end);
  return plans;
}

}  // namespace

// What planning by cost needs. The gradients' memory is still zero, and stays so.
absl::Status GradientReducer::State::PrepareToPlan() {
  if (planned_ || !by_cost()) return absl::OkStatus();
  const std::span scratch(reinterpret_cast<float*>(memory_.data),
                          static_cast<size_t>(gradients_->layout().bytes) / sizeof(float));
  ASSIGN_OR_RETURN(cost_, internal::MeasureCost(*communicator_, scratch, call_options()));
  ready_times_ = std::make_unique<fusion::ReadyTimes>(size());
  need_times_ = std::make_unique<fusion::ReadyTimes>(size());
  return absl::OkStatus();
}

// REQUIRES: the plan does not stay yet.
absl::Status GradientReducer::State::PlanAfterStep(StepSummary& summary) {
  if (tuning_ != nullptr) return TuneAfterStep(summary);
  if (ready_times_ != nullptr) {
    ready_times_->EndStep(steps_ >= kFirstRecorded);
    need_times_->EndStep(steps_ >= kFirstRecorded);
  }
  if (steps_ < (by_cost() ? kLastTimed : kFirstRecorded)) return absl::OkStatus();
  return by_cost() ? PlanByCosts(summary) : PlanBySizes(summary);
}

// By the order in which rank 0 had its gradients ready in this step.
absl::Status GradientReducer::State::PlanBySizes(StepSummary& summary) {
  std::vector<int> order = readiness_->Order();
  RETURN_IF_ERROR(internal::AdoptOrder(*communicator_, order, call_options()));
  ++summary.control_messages;
  Follow(PlanBySize(tensors_, order, bucket_bytes()));
  Settle();
  return absl::OkStatus();
}

absl::Status GradientReducer::State::PlanByCosts(StepSummary& summary) {
  const std::span<const double> grains = options_.tune ? std::span<const double>(kTried) : kPlanned;
  internal::PlanTimes times{.ready = ready_times_->Median(), .need = need_times_->Median()};
  if (!options_.priorities) times.need.assign(times.need.size(), 0);
  ASSIGN_OR_RETURN(std::vector<fusion::Plan> plans,
                   internal::PlanTogether(*communicator_, tensors_, times, cost_, grains, call_options()));
  summary.control_messages += 1 + static_cast<int>(plans.size());
  const fusion::Plan planned = plans[plans.size() / 2];
  const auto [first_double, end] = std::ranges::unique(plans);
  plans.erase(first_double, end);
  const auto first = static_cast<int>(std::ranges::find(plans, planned) - plans.begin());
  const auto by_cost = static_cast<int>(plans.size());
  if (options_.tune) {
    for (fusion::Plan& plan : PlansBySize(tensors_, times.ready)) {
      if (std::ranges::find(plans, plan) == plans.end()) plans.push_back(std::move(plan));
    }
  }
  fusion::Tuner tuner(by_cost, first, static_cast<int>(plans.size()) - by_cost);
  Follow(planned);
  if (tuner.over()) {
    Settle();
  } else {
    ready_times_.reset();
    need_times_.reset();
    tuning_ = std::make_unique<Tuning>(std::move(plans), tuner, first);
  }
  return absl::OkStatus();
}

// The plan in use stays.
void GradientReducer::State::Settle() {
  planned_ = true;
  ready_times_.reset();
  need_times_.reset();
  tuning_.reset();
  if (communicator_->rank() != 0) return;
  ranks_->runtime().logger().Debug(absl::StrFormat(
      "planned %d buckets, the last one of %d bytes; a bucket takes %.3g s, a byte %.3g s", plan_.buckets.size(),
      plan_.buckets.empty() ? 0 : plan_.buckets.back().bytes(), cost_.seconds_per_bucket, cost_.seconds_per_byte));
}

// --- Trying others ---

// Whoever is first: what comes before a step's first gradient no plan changes.
void GradientReducer::State::NoteFirstGradient() {
  Duration::rep none = 0;
  if (tuning_->first_gradient.load(std::memory_order_relaxed) != none) return;
  tuning_->first_gradient.compare_exchange_strong(none, std::chrono::steady_clock::now().time_since_epoch().count());
}

absl::Status GradientReducer::State::TuneAfterStep(StepSummary& summary) {
  fusion::Tuner& tuner = tuning_->tuner;
  const TimePoint begin(Duration(tuning_->first_gradient.exchange(0)));
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
  if (!tuner.EndStep(taken.count())) return absl::OkStatus();
  std::array<double, 1> slowest = {tuner.Median()};
  RETURN_IF_ERROR(communicator_->AllReduce(slowest, {.op = ReduceOp::kMax, .timeout = timeout_}));
  ++summary.control_messages;
  tuner.EndTurn(slowest[0]);
  if (tuner.current() != tuning_->followed) {
    tuning_->followed = tuner.current();
    Follow(tuning_->plans[static_cast<size_t>(tuning_->followed)]);
  }
  if (tuner.over()) Settle();
  return absl::OkStatus();
}

}  // namespace gyre
