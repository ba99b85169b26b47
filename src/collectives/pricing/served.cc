#include "collectives/pricing/served.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <queue>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace gyre::internal {

namespace {

// Steele, Lea and Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014: the finaliser of SplitMix64.
uint64_t Mix(uint64_t value) {
  value += 0x9e3779b97f4a7c15U;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9U;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebU;
  return value ^ (value >> 31);
}

absl::Status CheckServedQuestion(const ServedQuestion& q) {
  const std::pair<const char*, bool> checks[] = {
      {"the number of workers", q.workers >= 1},
      {"the computation of a step", q.compute_seconds >= 0},
      {"the time of a link", q.link_seconds >= 0},
      {"the time of the servers", q.server_seconds >= 0},
      {"the latency", q.latency_seconds >= 0},
      {"the bound of staleness", !q.bound || *q.bound >= 0},
      {"the probability of a slow step", q.slowdown.probability >= 0 && q.slowdown.probability <= 1},
      {"the factor of a slow step", q.slowdown.factor > 0},
      {"the number of steps", q.most_steps >= 1}};
  for (const auto& [what, good] : checks) {
    if (!good) return absl::InvalidArgumentError(absl::StrCat(what, " is out of its range"));
  }
  return absl::OkStatus();
}

// One direction of all servers' links: one transfer after the other.
class Port {
 public:
  // Of a transfer that could begin now, and takes so long on the worker's own link: when it ends.
  double Carry(double now, double own, double here) {
    free_ = std::max(now, free_) + here;
    return std::max(now + own, free_);
  }

 private:
  double free_ = 0;
};

class Simulation {
 public:
  explicit Simulation(const ServedQuestion& question)
      : q_(question), pushed_(static_cast<size_t>(q_.workers), 0), at_step_{{0, q_.workers}} {
    for (int worker = 0; worker < q_.workers; ++worker) Compute(worker, 0);
  }

  std::vector<double> Run() {
    std::vector<double> ends;
    while (std::ssize(ends) < q_.most_steps && events_.top().when <= q_.most_seconds) {
      const Event event = events_.top();
      events_.pop();
      if (event.pushes) {
        Push(event);
      } else {
        ends.push_back(event.when);
        Compute(event.worker, event.when);
      }
    }
    return ends;
  }

 private:
  struct Event {
    double when = 0;
    int worker = 0;
    bool pushes = false;  // else its step has ended
    bool operator>(const Event& other) const { return std::pair(when, worker) > std::pair(other.when, other.worker); }
  };
  struct Pull {
    int worker = 0;
    double arrived = 0;  // its own push
  };

  int64_t& StepOf(int worker) { return pushed_[static_cast<size_t>(worker)]; }

  void Compute(int worker, double now) {
    const double seconds = q_.compute_seconds * SlowdownOf(q_.slowdown, worker, StepOf(worker));
    events_.push({.when = now + seconds, .worker = worker, .pushes = true});
  }

  void Push(const Event& event) {
    const double arrived = in_.Carry(event.when, q_.link_seconds, q_.server_seconds);
    const int64_t step = ++StepOf(event.worker);
    Move(step);
    // Who waited for this push gets values that it is part of.
    waiting_[q_.bound ? std::max<int64_t>(step - *q_.bound, 0) : 0].push_back({event.worker, arrived});
    while (!waiting_.empty() && waiting_.begin()->first <= slowest_) {
      for (const Pull& pull : waiting_.begin()->second) {
        const double there = out_.Carry(event.when, q_.link_seconds, q_.server_seconds);
        events_.push({.when = std::max({there, pull.arrived, arrived}) + q_.latency_seconds, .worker = pull.worker});
      }
      waiting_.erase(waiting_.begin());
    }
  }

  // A worker has come to this step, from the one before.
  void Move(int64_t step) {
    if (--at_step_[step - 1] == 0) at_step_.erase(step - 1);
    ++at_step_[step];
    slowest_ = at_step_.begin()->first;
  }

  const ServedQuestion& q_;
  Port in_, out_;
  std::vector<int64_t> pushed_;                   // steps, by worker
  std::map<int64_t, int> at_step_;                // workers, by how many steps they have pushed
  int64_t slowest_ = 0;                           // the fewest
  std::map<int64_t, std::vector<Pull>> waiting_;  // by how many steps the slowest must have pushed
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
};

}  // namespace

double SlowdownOf(const Slowdown& slowdown, int worker, int64_t step) {
  if (worker < slowdown.permanent) return slowdown.factor;
  const uint64_t lot = Mix(Mix(Mix(slowdown.seed) + static_cast<uint64_t>(worker)) + static_cast<uint64_t>(step));
  return std::ldexp(static_cast<double>(lot >> 11), -53) < slowdown.probability ? slowdown.factor : 1;
}

absl::StatusOr<std::vector<double>> ServedSteps(const ServedQuestion& question) {
  RETURN_IF_ERROR(CheckServedQuestion(question));
  return Simulation(question).Run();
}

double SteadyRate(const std::vector<double>& ends, int workers) {
  const auto rounds = static_cast<int64_t>(ends.size()) / workers;
  const size_t from = static_cast<size_t>(rounds / 3 * workers), to = static_cast<size_t>(rounds * workers);
  const double seconds = ends[to - 1] - ends[from - 1];
  return static_cast<double>(to - from) / seconds;
}

}  // namespace gyre::internal
