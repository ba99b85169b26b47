#include "fusion/need_planner.h"

#include <algorithm>
#include <numeric>
#include <queue>
#include <tuple>
#include <utility>
#include <vector>

namespace gyre::fusion {

namespace {

constexpr double kWorth = 0.01;  // of a step: what turns are worth
constexpr int64_t kSmallest = 256 << 10, kLargest = 64 << 20;
constexpr int64_t kMostSlices = 4096;  // of all bytes

// A bucket on its way.
struct Job {
  double ready = 0;
  double need = 0;
  int64_t done = 0;  // elements
};

std::vector<Job> JobsOf(const Plan& plan, std::span<const double> ready, std::span<const double> need) {
  std::vector<Job> jobs;
  for (const Bucket& bucket : plan.buckets) {
    const auto first = static_cast<size_t>(bucket.tensors.front());
    Job& job = jobs.emplace_back(Job{.ready = ready[first], .need = need[first]});
    for (const int tensor : bucket.tensors) {
      job.ready = std::max(job.ready, ready[static_cast<size_t>(tensor)]);
      job.need = std::min(job.need, need[static_cast<size_t>(tensor)]);
    }
  }
  return jobs;
}

// At every moment the bucket that is needed first goes on, of those that are ready, by at most `slice` bytes.
std::vector<Turn> TurnsByNeed(const Plan& plan, std::vector<Job> jobs, const CostModel& model, int64_t slice) {
  std::vector<int> waiting(jobs.size());
  std::iota(waiting.begin(), waiting.end(), 0);
  std::ranges::stable_sort(waiting, {}, [&](int b) { return jobs[static_cast<size_t>(b)].ready; });
  const auto later = [&](int a, int b) {
    return std::tuple(jobs[static_cast<size_t>(a)].need, a) > std::tuple(jobs[static_cast<size_t>(b)].need, b);
  };
  std::priority_queue<int, std::vector<int>, decltype(later)> urgent(later);
  std::vector<Turn> turns;
  double now = 0;
  for (size_t next = 0; next < waiting.size() || !urgent.empty();) {
    const auto ready_at = [&] { return jobs[static_cast<size_t>(waiting[next])].ready; };
    if (urgent.empty()) now = std::max(now, ready_at());
    for (; next < waiting.size() && ready_at() <= now; ++next) urgent.push(waiting[next]);
    const int number = urgent.top();
    Job& job = jobs[static_cast<size_t>(number)];
    const Bucket& bucket = plan.buckets[static_cast<size_t>(number)];
    const int64_t left = bucket.count - job.done;
    const int64_t take = bucket.tensors.size() == 1 ? std::min(left, slice / DTypeSize(bucket.dtype)) : left;
    if (turns.empty() || turns.back().bucket != number) {
      turns.push_back({number, job.done, 0});
      now += model.seconds_per_bucket;
    }
    turns.back().count += take;
    job.done += take;
    now += static_cast<double>(take * DTypeSize(bucket.dtype)) * model.seconds_per_byte;
    if (job.done == bucket.count) urgent.pop();
  }
  return turns;
}

// Buckets in the order of their first turns.
void Renumber(Plan& plan) {
  std::vector<int> numbers(plan.buckets.size(), -1);
  std::vector<Bucket> in_order;
  for (Turn& turn : plan.turns) {
    int& number = numbers[static_cast<size_t>(turn.bucket)];
    if (number < 0) {
      number = static_cast<int>(in_order.size());
      in_order.push_back(std::move(plan.buckets[static_cast<size_t>(turn.bucket)]));
    }
    turn.bucket = number;
  }
  plan.buckets = std::move(in_order);
}

// From the last to be needed to the first: the small bucket at the end of PlanBySize is that of the first layers.
std::vector<int> LastNeededFirst(std::span<const double> ready, std::span<const double> need) {
  std::vector<int> order(need.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, [&](int a, int b) {
    const auto key = [&](int tensor) {
      return std::pair(-need[static_cast<size_t>(tensor)], ready[static_cast<size_t>(tensor)]);
    };
    return key(a) < key(b);
  });
  return order;
}

}  // namespace

Plan PlanByNeed(std::span<const TensorInfo> tensors, std::span<const double> ready, std::span<const double> need,
                const CostModel& model, double grain) {
  Plan best = PlanCautiously(tensors, ready, model, grain);
  if (tensors.empty()) return best;
  const auto times = [&](double factor) {
    return CostModel{factor * grain * model.seconds_per_bucket, factor * model.seconds_per_byte};
  };
  const auto lost = [&](const Plan& plan) {
    return LostSeconds(plan, ready, need, times(1)) + LostSeconds(plan, ready, need, times(2));
  };
  int64_t total = 0;
  for (const TensorInfo& tensor : tensors) total += tensor.bytes();
  const std::vector<int> order = LastNeededFirst(ready, need);
  const double margin = 2 * kWorth * std::ranges::max(need);
  double least = lost(best);
  for (int64_t bytes = kLargest; bytes >= std::max(kSmallest, total / kMostSlices); bytes /= 2) {
    const Plan buckets = PlanBySize(tensors, order, bytes);
    for (const double factor : {1.0, 2.0}) {
      Plan plan = buckets;
      plan.turns = TurnsByNeed(plan, JobsOf(plan, ready, need), times(factor), bytes);
      Renumber(plan);
      const double loss = lost(plan);
      if (loss >= least - margin) continue;
      least = loss;
      best = std::move(plan);
    }
  }
  return best;
}

double LostSeconds(const Plan& plan, std::span<const double> ready, std::span<const double> need,
                   const CostModel& model) {
  std::vector<Job> jobs = JobsOf(plan, ready, need);
  double now = 0, lost = 0;
  const auto take = [&](int number, int64_t count) {
    const Bucket& bucket = plan.buckets[static_cast<size_t>(number)];
    Job& job = jobs[static_cast<size_t>(number)];
    now = std::max(now, job.ready) + model.seconds_per_bucket +
          static_cast<double>(count * DTypeSize(bucket.dtype)) * model.seconds_per_byte;
    job.done += count;
    if (job.done == bucket.count) lost = std::max(lost, now - job.need);
  };
  for (const Turn& turn : plan.turns) take(turn.bucket, turn.count);
  for (int b = 0; plan.turns.empty() && b < std::ssize(plan.buckets); ++b) {
    take(b, plan.buckets[static_cast<size_t>(b)].count);
  }
  return lost;
}

}  // namespace gyre::fusion
