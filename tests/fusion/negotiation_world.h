// A simulated cluster that negotiates: ranks with programs of their own, a network that delays messages, collective
// calls that are matched by their order, and a clock, all in one thread and from a seed.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <queue>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "fusion/coordinator.h"
#include "fusion/negotiator.h"

namespace gyre {

// What one rank submits at a time: one operation or a group.
struct SimSubmission {
  std::vector<std::pair<std::string, internal::NamedSignature>> operations{};
  Duration timeout{};
  Duration delay{};    // before it, since the one before
  bool waits = false;  // for its end, before the next
};

// One rank's program: steps, each of which is submitted and then waited for; then a join, if it ends with one.
struct SimProgram {
  std::vector<std::vector<SimSubmission>> steps{};
  bool joins = false;
};

// How one operation ended on one rank.
struct SimEnd {
  std::string name;
  int instance = 0;  // which of this rank's of that name
  absl::Status status;
};

class NegotiationWorld {
 public:
  NegotiationWorld(std::vector<SimProgram> programs, uint64_t seed);

  // Runs until all programs have ended, or nothing more would happen; then lets all ranks leave. What is wrong, or
  // empty: a rank that hangs, calls that do not match.
  std::string Run();

  const std::vector<SimEnd>& ends(int rank) const { return ranks_[static_cast<size_t>(rank)]->ends; }
  int join_value(int rank) const { return ranks_[static_cast<size_t>(rank)]->join_value; }
  const internal::Negotiator& negotiator(int rank) const { return ranks_[static_cast<size_t>(rank)]->negotiator; }
  size_t calls(int rank) const { return ranks_[static_cast<size_t>(rank)]->calls; }
  size_t most_parts(int rank) const { return ranks_[static_cast<size_t>(rank)]->most_parts; }  // of one call
  int64_t messages() const { return finished_messages_; }       // between ranks, until all programs had ended
  int64_t frozen_messages() const { return frozen_messages_; }  // those from ranks whose order was frozen
  Duration took() const { return finished_ - TimePoint{} - std::chrono::hours(1); }  // until all programs had ended

 private:
  struct SimRank {
    SimRank(int rank, Duration hold) : negotiator(rank, hold) {}
    internal::Negotiator negotiator;
    SimProgram program;
    size_t step = 0, next = 0;
    bool waiting = false, submitting = false, asked = false, joined = false, done = false;
    uint64_t last_ticket = 0;
    std::map<uint64_t, std::pair<std::string, int>> flying;
    std::map<std::string, int> instances;
    std::vector<SimEnd> ends;
    uint64_t join_ticket = 0;
    int join_value = -1;
    size_t calls = 0, most_parts = 0;
    TimePoint wakes = TimePoint::max();
    TimePoint report_arrival{}, decision_arrival{};
  };
  // A collective call: what each rank has made of it.
  struct SimCall {
    std::vector<std::pair<internal::NamedStep::Kind, std::string>> made;
    size_t count = 0;
  };
  struct Event {
    TimePoint time;
    uint64_t sequence;
    std::function<void()> what;
    bool operator<(const Event& other) const { return std::tie(time, sequence) > std::tie(other.time, other.sequence); }
  };

  int size() const { return static_cast<int>(ranks_.size()); }
  void At(TimePoint time, std::function<void()> what);
  Duration Random(int at_most_us);
  void Drive(int rank);
  bool Advance(int rank);
  void Submit(int rank);
  bool Talk(int rank);
  bool Call(int rank);
  void Match(size_t call);
  void Wake(int rank);
  void Wrong(const std::string& what);

  std::mt19937_64 random_;
  TimePoint now_{}, finished_{};
  uint64_t sequence_ = 0;
  std::priority_queue<Event> events_;
  internal::Coordinator coordinator_;
  std::vector<std::unique_ptr<SimRank>> ranks_;
  std::map<size_t, SimCall> calls_;
  int64_t messages_ = 0, frozen_messages_ = 0, finished_messages_ = 0;
  std::string wrong_;
};

// A cluster and programs drawn from the seed: orders, groups, delays, changing sets, and at most one fault. What is
// wrong with how it went, or empty.
std::string RunRandomNegotiation(uint64_t seed, int most_ranks);

}  // namespace gyre
