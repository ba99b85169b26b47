// Negotiator: one rank's part in agreeing on the order of named operations. Pure: whoever drives it carries its reports
// to the coordinator, brings the decisions, makes the collective calls that it asks for, one at a time, and tells it
// how they ended. Not thread-safe.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "base/clock.h"
#include "fusion/cycle_tracker.h"
#include "fusion/negotiation.h"

namespace gyre::internal {

struct Submission {
  uint64_t ticket = 0;  // what the driver calls it; not 0, increasing
  std::string name{};
  NamedSignature signature{};
  Duration timeout{};
};

// An operation that is to be carried out.
struct NamedPart {
  uint64_t ticket = 0;  // 0: this rank has joined and contributes nothing
  NamedCall call{};
};

// A collective call to make. kRun: all ranks make it. kFrozen: all ranks make it, or some of them kDeviate in its
// place: then all these calls must end in kInvalidArgument, or in OK where nobody made it, and change no data.
struct NamedStep {
  enum class Kind { kRun, kFrozen, kDeviate };
  Kind kind = Kind::kRun;
  std::vector<NamedPart> parts{};  // what it carries out: several that travel as one (fused_calls.h); kDeviate: nothing
  std::vector<int32_t> absent{};   // the ranks that contribute nothing
};

// An operation that has ended. A join's value is the rank that joined last.
struct NamedEnd {
  uint64_t ticket = 0;
  absl::Status status{};
  int value = -1;
};

class Negotiator {
 public:
  // `hold`: how long, in a frozen order, an operation is kept waiting for the one before it.
  Negotiator(int rank, Duration hold) : rank_(rank), hold_(hold) {}

  // --- What the program wants ---

  // One operation, or a group of them. An error refuses all of it: kAlreadyExists, a name is in flight;
  // kFailedPrecondition, this rank has joined, or all has ended.
  absl::Status Submit(std::vector<Submission> submissions, TimePoint now);
  absl::Status Join(uint64_t ticket);  // likewise
  void Leave();                        // pending operations still run where the others have agreed to them

  // --- Messages ---

  std::optional<Report> TakeReport(TimePoint now);
  void OnDecisions(std::vector<Decision> decisions);

  // --- Collective calls ---

  // The next call, if there is one by now and the last has ended. It stays where it is until OnStepEnded, or for good
  // once it is over.
  const NamedStep* NextStep();
  void OnStepEnded(const absl::Status& status);

  // Nothing goes on: all that is pending ends with the status, and so does what comes.
  void End(const absl::Status& status);

  // --- Time ---

  void Tick(TimePoint now);
  TimePoint deadline() const;  // when Tick has something to do next, as of the last Tick

  // --- What came of it ---

  std::vector<NamedEnd> TakeEnded() { return std::exchange(ended_, {}); }
  bool may_report() const { return unreported_; }  // otherwise TakeReport has nothing
  const absl::Status& over_status() const { return over_; }
  bool over() const { return !over_.ok(); }  // the coordinator has let go, or End was called
  bool frozen() const { return generation_ % 2 == 1; }
  bool idle() const { return pending_.empty() && decisions_.empty() && !running_; }
  uint64_t generation() const { return generation_; }
  uint64_t frozen_calls() const { return frozen_calls_; }                // carried out so far, over all generations
  const std::string& last_deviation() const { return last_deviation_; }  // in words, or empty

 private:
  struct Pending {
    uint64_t ticket;
    NamedSignature signature{};
    TimePoint deadline{};
    TimePoint stalls{};  // when a frozen call for it has waited for too long
    bool reported = false;
  };

  std::optional<NamedStep> Apply(Decision& decision);
  std::optional<NamedStep> Run(Decision& decision);
  bool AddPart(NamedStep& step, NamedCall call);
  void Fail(const Decision& decision);
  void Freeze(const Decision& decision);
  std::optional<NamedStep> NextFrozen();
  NamedStep Deviate(const std::string& why);
  void Thaw();
  size_t place() const { return position_ % order_.size(); }  // in the frozen order
  const NamedCall& frontier() const { return order_[place()]; }
  bool Fits(const NamedSignature& signature, const NamedCall& call) const;
  void Notice(const std::string& name, const NamedSignature& signature);
  TimePoint NextStall() const;
  void EndOne(const std::string& name, absl::Status status);

  const int rank_;
  const Duration hold_;
  uint64_t generation_ = 0;
  absl::Status over_;
  std::map<std::string, Pending> pending_;
  std::deque<Decision> decisions_;
  std::optional<NamedStep> running_;
  CycleTracker cycles_;
  std::vector<NamedEnd> ended_;
  bool unreported_ = false;  // something is to be told

  uint64_t join_ticket_ = 0;  // 0: this rank has not joined
  bool join_reported_ = false;
  bool leaving_ = false;
  bool leave_reported_ = false;

  // --- While frozen ---
  std::vector<NamedCall> order_;
  std::map<std::string, size_t> places_;  // of order_
  uint64_t position_ = 0;                 // calls carried out in this generation
  uint64_t frozen_calls_ = 0;
  std::string unfit_;              // what cannot follow the order, or empty
  std::optional<Decision> stall_;  // the last: who has nothing to call for makes way
  TimePoint blocked_since_ = TimePoint::max();
  bool stall_reported_ = false;  // of the call that is under way
  bool stall_untold_ = false;

  bool thawed_ = false;  // since the last report
  std::string deviation_;
  std::string last_deviation_;
};

}  // namespace gyre::internal
