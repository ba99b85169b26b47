// Operation: a collective over shared memory as a sequence of rounds. In each round every rank publishes something in
// its slot, the ranks meet, and each consumes what it needs of the others' slots. What is published and consumed is the
// algorithm's; meeting, agreement, deadlines and losses are dealt with here, once for all of them.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "collectives/call.h"
#include "collectives/lane.h"
#include "collectives/shm/group.h"

namespace gyre::internal {

class Operation : public Pollable {
 public:
  // `group` must live until the operation is done: whoever makes an asynchronous one holds it (see Hold).
  Operation(Group& group, Channel& channel, Signature signature, std::chrono::milliseconds timeout)
      : group_(group), channel_(channel), signature_(signature), timeout_(timeout) {}

  shm::Progress Poll() final;
  bool Check(TimePoint now) final;
  void StartClock(TimePoint now) final { deadline_ = DeadlineAfter(now, timeout_); }
  TimePoint deadline() const final { return deadline_; }

  // From now on the operation keeps its group alive.
  void Hold(std::shared_ptr<Group> group) { held_ = std::move(group); }

  // If another rank has left in order, this operation ends, and the group stays usable.
  void LetPeersLeave() { peers_may_leave_ = true; }

  Channel& channel() const { return channel_; }

  // The ranks that have not come to the round in hand, in words; empty where all have, or it has not begun. For its
  // lane's driver.
  std::string Awaited();

  // After a Poll that returned kNone: one of the group's ranks that have not come to the operation, or -1: all have, or
  // it has not begun. Cheap. For its lane's driver.
  int MissingRank() const { return state_ == State::kPosted && round_ == 0 ? Member(meeting().awaited()) : -1; }

  // Its owner ends without it; other ranks may go on with it. It must not be polled any more.
  void Abandon() {
    if (state_ == State::kPosted) OnGivenUp();
    state_ = State::kEnded;
  }

 protected:
  // What comes next: the same round again (long work is done in pieces, with a look at deadline and losses between
  // them), the next round, a round in which nothing is published (slots keep what they have), or nothing.
  enum class Next { kAgain, kRound, kFence, kEnd };

  // Writes this rank's part of round `round` (0, 1, ...) into meeting().mine(): payload and arena offsets.
  virtual void Publish(int64_t round) = 0;

  // All have published the round: reads meeting().slot(0 .. size - 1), but for this rank's own (Meeting::Gathered).
  virtual Next Consume(int64_t round) = 0;

  // It has ended in an error while other ranks may go on with it: from now on, what they were shown must not be reused.
  virtual void OnGivenUp() {}

  // It has ended, however: may change status_.
  virtual void OnEnd() {}

  Group& group() const { return group_; }
  shm::Meeting& meeting() const { return channel_.meeting; }
  int size() const { return meeting().size(); }
  int rank() const { return meeting().self(); }

  // From Consume, with a status that all ranks reach alike: ends the operation, the group stays usable.
  Next Refuse(absl::Status status) {
    status_ = std::move(status);
    return Next::kEnd;
  }

  // From Consume, with what other ranks may not find: end the operation and break the group. For a member that has
  // left, with what it left for.
  Next GiveUp(absl::Status status);
  Next GiveUpOn(int member);

  // The first other member of the channel (of `members`) that has left, or -1: it may have other plans for its buffers
  // by now.
  int FirstGone() const;
  int FirstGone(std::span<const int> members) const;

  // From Consume, where the group is not usable, or the runtime was shut down: ends the operation for that reason.
  Next EndBroken();

  // "allreduce(f32, 1000 elements, sum), call 17".
  std::string Context() const;

 private:
  enum class State { kBefore, kPosted, kEnded };

  bool HasLeft(int member) const;
  bool Begin();
  bool RefuseToBegin();
  void Post();
  bool Agreed();
  bool Fail(absl::Status status, const shm::LastWords::Content& words);
  void End();
  void EndWith(absl::Status status);
  bool FindCause();
  bool FindBroken();
  bool FindGivenUp();
  bool FindLost();
  bool FailFor(const shm::Node::Loss& loss);
  bool FailLate();
  int Member(int channel_member) const { return channel_.members[static_cast<size_t>(channel_member)]; }
  std::string CallOf(int channel_member);

  Group& group_;
  Channel& channel_;
  const Signature signature_;
  const std::chrono::milliseconds timeout_;
  State state_ = State::kBefore;
  bool amid_round_ = false;  // Consume wants to be called again
  bool peers_may_leave_ = false;
  int64_t round_ = 0;
  int64_t call_ = 0;
  TimePoint deadline_{};  // set by StartClock, or at the first Check: a call that ends at once never reads the clock
  std::shared_ptr<Group> held_;
};

// A call that this rank may not make: it has the wrong arguments. It takes its turn nonetheless, so that the others do
// not wait for it or mistake the next call for it: all get kInvalidArgument.
class RefusedCall final : public Operation {
 public:
  RefusedCall(Group& group, Channel& channel, absl::Status why, std::chrono::milliseconds timeout);

 private:
  void Publish(int64_t round) override;
  Next Consume(int64_t) override { return Next::kEnd; }
  void OnEnd() override { status_ = why_; }

  const absl::Status why_;
};

}  // namespace gyre::internal
