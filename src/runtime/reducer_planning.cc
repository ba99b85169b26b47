#include "runtime/reducer_planning.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <utility>

#include "base/status.h"
#include "fusion/need_planner.h"

namespace gyre::internal {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::array<int64_t, 4> kMeasuredBytes = {16 << 10, 128 << 10, 1 << 20, 8 << 20};
constexpr int kRepeats = 3;
constexpr double kLongEnough = 0.01;  // seconds

// A bucket in mid-step is begun by a thread that slept until its last gradient was ready, on every rank: a wake-up
// takes tens of microseconds, which calls in a row do not show.
constexpr double kWakeUpSeconds = 50e-6;

// The middle one of some calls, as the slowest rank sees it.
absl::StatusOr<double> TimeAllReduce(Communicator& communicator, std::span<float> data, const CallOptions& options) {
  const ReduceOptions sum{.timeout = options.timeout};
  std::array<double, kRepeats> seconds{};
  for (double& each : seconds) {
    const auto start = Clock::now();
    RETURN_IF_ERROR(communicator.AllReduce(data, sum));
    each = std::chrono::duration<double>(Clock::now() - start).count();
  }
  std::ranges::sort(seconds);
  std::array<double, 1> slowest = {seconds[kRepeats / 2]};
  RETURN_IF_ERROR(communicator.AllReduce(slowest, {.op = ReduceOp::kMax, .timeout = options.timeout}));
  return slowest[0];
}

// A plan in numbers: for each tensor, in the order of buckets, its index and its bucket's number; how many turns; and
// each of these, with room for two a tensor.
constexpr size_t kOfTensor = 2, kOfTurn = 3, kTurnsOfTensor = 2;

size_t EncodedSize(size_t tensors) {
  return tensors * kOfTensor + 1 + tensors * kTurnsOfTensor * kOfTurn;
}

std::vector<int64_t> Encode(const fusion::Plan& plan, size_t tensors) {
  std::vector<int64_t> numbers;
  for (int64_t b = 0; const fusion::Bucket& bucket : plan.buckets) {
    for (const int tensor : bucket.tensors) numbers.insert(numbers.end(), {tensor, b});
    ++b;
  }
  numbers.resize(tensors * kOfTensor);
  numbers.push_back(std::ssize(plan.turns));
  for (const fusion::Turn& turn : plan.turns) numbers.insert(numbers.end(), {turn.bucket, turn.begin, turn.count});
  numbers.resize(EncodedSize(tensors));
  return numbers;
}

absl::StatusOr<fusion::Plan> Decode(std::span<const int64_t> numbers, std::span<const fusion::TensorInfo> tensors) {
  const auto wrong = [] { return absl::DataLossError("rank 0 sent a plan that is none for these gradients"); };
  std::vector<bool> seen(tensors.size());
  std::vector<std::vector<int>> members;
  for (size_t i = 0; i < tensors.size() * kOfTensor; i += kOfTensor) {
    const int64_t tensor = numbers[i], bucket = numbers[i + 1];
    if (tensor < 0 || tensor >= std::ssize(tensors) || seen[static_cast<size_t>(tensor)]) return wrong();
    seen[static_cast<size_t>(tensor)] = true;
    if (bucket == std::ssize(members)) members.emplace_back();
    if (bucket < 0 || bucket + 1 != std::ssize(members)) return wrong();
    const int64_t first = members.back().empty() ? tensor : members.back().front();
    if (tensors[static_cast<size_t>(tensor)].dtype != tensors[static_cast<size_t>(first)].dtype) return wrong();
    members.back().push_back(static_cast<int>(tensor));
  }
  fusion::Plan plan;
  for (std::vector<int>& each : members) plan.buckets.push_back(MakeBucket(tensors, std::move(each)));
  std::span<const int64_t> turns = numbers.subspan(tensors.size() * kOfTensor + 1);
  const int64_t count = numbers[tensors.size() * kOfTensor];
  if (count < 0 || count > std::ssize(turns) / static_cast<int64_t>(kOfTurn)) return wrong();
  for (int64_t i = 0; i < count; ++i, turns = turns.subspan(kOfTurn)) {
    if (turns[0] < 0 || turns[0] >= std::ssize(plan.buckets)) return wrong();
    plan.turns.push_back({static_cast<int>(turns[0]), turns[1], turns[2]});
  }
  if (!HasRightTurns(plan)) return wrong();
  return plan;
}

}  // namespace

absl::StatusOr<fusion::CostModel> MeasureCost(Communicator& communicator, std::span<float> scratch,
                                              const CallOptions& options) {
  std::vector<fusion::CostSample> samples;
  for (const int64_t bytes : kMeasuredBytes) {
    const auto fitting = std::min<int64_t>(bytes, static_cast<int64_t>(scratch.size_bytes()));
    if (!samples.empty() && samples.back().bytes == fitting) break;
    const std::span<float> part = scratch.first(static_cast<size_t>(fitting) / sizeof(float));
    if (samples.empty()) {  // warms up
      RETURN_IF_ERROR(communicator.AllReduce(part, {.timeout = options.timeout}));
    }
    ASSIGN_OR_RETURN(const double seconds, TimeAllReduce(communicator, part, options));
    samples.push_back({fitting, seconds});
    if (seconds > kLongEnough) break;
  }
  fusion::CostModel cost = fusion::FitCost(samples);
  cost.seconds_per_bucket += kWakeUpSeconds;
  return cost;
}

absl::StatusOr<std::vector<fusion::Plan>> PlanTogether(Communicator& communicator,
                                                       std::span<const fusion::TensorInfo> tensors, PlanTimes& times,
                                                       const fusion::CostModel& cost, std::span<const double> grains,
                                                       const CallOptions& options) {
  std::vector<double> both = times.ready;
  both.insert(both.end(), times.need.begin(), times.need.end());
  RETURN_IF_ERROR(communicator.AllReduce(both, {.op = ReduceOp::kMax, .timeout = options.timeout}));
  const auto middle = both.begin() + std::ssize(times.ready);
  times = {.ready = {both.begin(), middle}, .need = {middle, both.end()}};
  const bool together = std::ranges::adjacent_find(times.need, std::ranges::not_equal_to()) == times.need.end();
  std::vector<fusion::Plan> plans;
  for (const double grain : grains) {
    fusion::Plan& plan = plans.emplace_back();
    if (communicator.rank() == 0) {
      plan = together ? PlanCautiously(tensors, times.ready, cost, grain)
                      : PlanByNeed(tensors, times.ready, times.need, cost, grain);
    }
    RETURN_IF_ERROR(AdoptPlan(communicator, tensors, plan, options));
  }
  return plans;
}

absl::Status AdoptPlan(Communicator& communicator, std::span<const fusion::TensorInfo> tensors, fusion::Plan& plan,
                       const CallOptions& options) {
  std::vector<int64_t> numbers(EncodedSize(tensors.size()));
  if (communicator.rank() == 0) numbers = Encode(plan, tensors.size());
  RETURN_IF_ERROR(communicator.Broadcast(numbers, 0, options));
  ASSIGN_OR_RETURN(plan, Decode(numbers, tensors));
  return absl::OkStatus();
}

}  // namespace gyre::internal
