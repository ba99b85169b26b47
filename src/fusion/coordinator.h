// Coordinator: decides which of the operations that ranks have reported run, in which order, and which end in an error.
// It lives on rank 0 of a communicator. Pure: whoever drives it brings the reports and carries its decisions to all
// ranks, itself among them, all in the same order.
//
//   runs           once every rank that has not joined has reported it, and the rest of its group likewise
//   fails          kInvalidArgument at the first rank whose signature differs; kDeadlineExceeded at the first deadline
//                  of those who reported it, naming who did not. A rank that reports it later learns the same then: so
//                  its next operation of that name is matched with the others' next one.
//   freezes        after 3 identical cycles; more of them each time that a frozen order did not last
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "base/clock.h"
#include "fusion/cycle_tracker.h"
#include "fusion/negotiation.h"

namespace gyre::internal {

class Coordinator {
 public:
  explicit Coordinator(int size) : size_(size), joined_(static_cast<size_t>(size)), has_gpu_(joined_.size()) {}

  // Reports of a rank come in the order in which it made them. An error: the rank does not follow the protocol.
  absl::Status OnReport(int from, const Report& report, TimePoint now);

  // A rank has left without a report: named operations end on all ranks. `why`: what the others are told.
  void Leave(int rank, const std::string& why);

  // Ends what has waited until its deadline.
  void Tick(TimePoint now);

  // What has waited for a quarter of its time, or 10 s, since the first rank reported it, in words that name the ranks
  // that have not. Each operation once.
  std::vector<std::string> TakeWarnings() { return std::exchange(warnings_, {}); }

  // When Tick has something to do next.
  TimePoint deadline() const { return deadline_; }

  // What was decided since the last time.
  std::vector<Decision> Take() { return std::exchange(decisions_, {}); }

 private:
  // An operation that not all ranks have reported yet.
  struct Entry {
    NamedSignature signature{};  // the first reporter's
    int first = 0;               // who that is
    std::vector<bool> reported{};
    std::vector<int64_t> counts{};
    TimePoint deadline{};
    TimePoint warning = TimePoint::max();
    uint64_t sequence = 0;
  };

  // An operation that has failed, which some ranks are yet to report.
  struct Debt {
    absl::Status status;
    std::vector<int32_t> ranks;
  };

  bool frozen() const { return generation_ % 2 == 1; }
  // Groups of the report in hand that have failed, and why.
  using BrokenGroups = std::map<uint64_t, absl::Status>;

  absl::Status Announce(int from, const Announcement& announcement, TimePoint now, BrokenGroups& broken);
  void BreakGroup(uint64_t group, uint64_t known, const absl::Status& status, BrokenGroups& broken);
  void Join(int rank);
  void ResolveAll();
  void Resolve(const std::string& name);
  void Run(const std::vector<std::string>& names);
  bool Freeze(const std::string& name);
  void Thaw(const Report& report);
  std::vector<std::string> MembersOf(const std::string& name) const;
  bool PayDebt(int from, const std::string& name);
  bool Complete(const Entry& entry) const;
  absl::Status WhyNotWithout(const Entry& entry) const;
  void Fail(const std::string& name, const absl::Status& status);
  void FailOne(const std::string& name, const absl::Status& status);
  std::string WhoIsMissing(const std::string& name) const;
  void WarnOfLate(TimePoint now);
  std::vector<int32_t> Missing(const Entry& entry, bool with_joined) const;
  void FindDeadline();
  Decision& Decide(DecisionKind kind);
  void DecideFailure(const std::string& name, const absl::Status& status, std::vector<int32_t> ranks);

  const int size_;
  uint64_t generation_ = 0;
  bool left_ = false;
  std::map<std::string, Entry> entries_;
  std::map<std::string, std::vector<Debt>> debts_;  // by name, oldest first
  std::vector<bool> joined_;
  std::vector<bool> has_gpu_;  // that it has brought a tensor on
  int joined_count_ = 0;
  uint64_t next_sequence_ = 0;
  TimePoint deadline_ = TimePoint::max();
  CycleTracker cycles_;
  uint64_t needed_cycles_ = kFirstCycles;
  std::vector<Decision> decisions_;
  std::vector<std::string> warnings_;

  static constexpr uint64_t kFirstCycles = 3, kMostCycles = 768;
};

}  // namespace gyre::internal
