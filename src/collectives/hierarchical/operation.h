// HierarchicalOperation: a call of a communicator that spans hosts, as a sequence of stages. A stage has operations in
// the host's memory, one after the other, and at the same time at most one schedule between hosts; the next stage
// begins when both have ended. Deadlines, losses and disagreement are dealt with here, once for all of them.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "collectives/call.h"
#include "collectives/executor.h"
#include "collectives/hierarchical/team.h"
#include "collectives/lane.h"
#include "collectives/shm/broadcast.h"
#include "collectives/shm/operation.h"

namespace gyre::internal {

class HierarchicalOperation : public Pollable {
 public:
  shm::Progress Poll() final;
  bool Check(TimePoint now) final;
  void StartClock(TimePoint now) final;
  TimePoint deadline() const final { return deadline_; }
  bool AddWaits(std::vector<pollfd>& waits) const final;

  // Who has not come, or not far enough, in words; empty: it has not begun. For its lane's driver.
  std::string Awaited() const;

  // After a Poll that returned kNone: one of the communicator's ranks that, by what this one sees of it, have not come;
  // -1: none is known. Cheap. For its lane's driver.
  int MissingRank() const;

 protected:
  struct Stage {
    absl::InlinedVector<std::shared_ptr<Operation>, 2> local;
    std::unique_ptr<Executor> network;
    std::optional<Refiner::Transfer> transfer;  // what the network has to do, where all ranks do the same
  };

  // `stages`: how many, unless the first says so (SetStages).
  HierarchicalOperation(std::shared_ptr<Team> team, const Call& call, int stages);
  void SetStages(int stages) { stages_ = stages; }

  // Other operations may be under way in the host's memory meanwhile: what calls have taught is not agreed on there.
  // For constructors; alike on all ranks.
  void LearnNothing() { learns_ = false; }

  // What stage `index` consists of, asked for when the one before it has ended. All ranks of a host must list the same
  // local operations.
  virtual Stage MakeStage(int index) = 0;

  // After the last stage, unless one failed. An error breaks the communicator.
  virtual absl::Status Finish() { return absl::OkStatus(); }

  // It has ended, however, after it had begun: may change status_.
  virtual void OnEnd() {}

  Team& team() const { return *team_; }
  const Call& call() const { return call_; }
  const Signature& signature() const { return signature_; }
  int64_t element() const { return DTypeSize(call_.in.dtype); }

  // Operations of the host. `counts`: elements by local rank. Null: there is nothing to do, or it is done already.
  using Counts = std::span<const int64_t>;
  std::unique_ptr<Operation> LocalReduceScatter(const void* in, Counts counts, void* out) const;
  std::unique_ptr<Operation> LocalAllGather(const void* in, Counts counts, void* out) const;
  std::unique_ptr<Operation> LocalBroadcast(int local_root, void* data, int64_t count) const;
  std::unique_ptr<Operation> LocalBarrier() const;

  // The calls of the first two, for who has room for their operations; nothing where they would be null.
  std::optional<Call> CallToReduceScatter(const void* in, Counts counts, void* out) const;
  std::optional<Call> CallToAllGather(const void* in, Counts counts, void* out) const;

  // This rank's part of a schedule between `ranks` (of the communicator, this one among them).
  // `sources`: as ExecutorPlan has them.
  std::unique_ptr<Executor> Network(const Schedule& schedule, std::span<const int> ranks,
                                    std::span<const MutableBytes> blocks, std::span<const Bytes> sources = {}) const;
  std::unique_ptr<Executor> Network(const Schedule& schedule, std::span<const int> ranks,
                                    std::span<const MutableBytes> blocks, std::span<const Bytes> sources,
                                    Streams& streams, uint64_t channel, uint64_t number,
                                    const device::Reduction& reduction) const;

  // Whether LocalReduceScatter would do no more than copy: the schedule between hosts may have the input as its source.
  bool OnlyCopies() const;

  // The call's reduction without its scales, and what is left to do to the sum over all hosts.
  device::Reduction PlainReduction() const;
  void ApplyResultScale(void* data, int64_t count) const;

 private:
  enum class State { kBefore, kUnderWay, kEnded };

  bool Begin();
  bool PollLocal();
  bool PollNetwork();
  bool StageEnded() const;
  bool NextStage();
  void BeginStage(Stage stage);
  Stage AgreeBetweenHosts();
  Stage AgreeWithinHost();
  void Learn();
  void EndNetwork();
  Operation* current_local() const;
  void ShowAwaited(int job_rank);
  void TellIfQuiet(TimePoint now);
  bool CheckLocal(TimePoint now);
  bool FindBroken();
  bool FindLost();
  bool FindEndedStream(TimePoint now);
  bool FailLate();
  bool FailLike(const absl::Status& local);
  bool FailFor(const shm::Node::Loss& loss);
  bool FailAlone(const absl::Status& why);
  bool Fail(absl::Status status, const shm::LastWords::Content& words);
  bool End(absl::Status status);
  std::string Context() const;
  int NumberOf(int job_rank) const;
  std::string NameOf(int job_rank) const;
  std::string GaveUp(absl::string_view why) const;

  const std::shared_ptr<Team> team_;
  const std::vector<int64_t> counts_, receive_counts_;  // what the call's spans refer to
  const Call call_;
  const Signature signature_;
  int stages_;
  bool learns_ = true;
  State state_ = State::kBefore;
  uint64_t number_ = 0;    // of the call in the team
  uint64_t learning_ = 0;  // among those of its calls that learn; 0: it does not
  int index_ = 0;
  Stage stage_;
  TimePoint stage_began_{};  // only where its transfer is timed
  size_t local_next_ = 0;
  std::optional<Broadcast> passes_lessons_on_;
  Refiner::Lessons lessons_{Refiner::kNothing, Refiner::kNothing};  // while all agree on them
  TimePoint start_{};                                               // set by StartClock, or at the first Check
  TimePoint deadline_{};
  int shown_ = -1;                         // the rank of the job that this host's ranks are shown as awaited
  bool moved_ = false;                     // between hosts, since the last look
  TimePoint quiet_since_{};                // nothing has
  std::optional<TimePoint> stream_ended_;  // when the network's stream was found to have ended
};

// The operation of a call. REQUIRES: Validate(call, team.rank(), team.size()) is OK, call.timeout is set; a message's
// peer is on another host.
std::shared_ptr<HierarchicalOperation> MakeHierarchical(const std::shared_ptr<Team>& team, const Call& call);

// A call that this rank may not make: it ends in `why` here, whatever else happens while the others are told, and in
// that code on the others; the communicator is given up. So a rank that is lost meanwhile, a shut-down or a deadline is
// told to this rank by its next call only, as kFailedPrecondition.
std::shared_ptr<HierarchicalOperation> MakeHierarchicalRefusal(const std::shared_ptr<Team>& team, const Call& call,
                                                               const absl::Status& why);

}  // namespace gyre::internal
