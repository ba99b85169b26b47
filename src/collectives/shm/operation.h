// Operation: a collective over shared memory as a sequence of rounds. In each round every rank publishes something in
// its slot, the ranks meet, and each consumes what it needs of the others' slots. What is published and consumed is the
// algorithm's; meeting, agreement, deadlines and losses are dealt with here, once for all of them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "collectives/call.h"
#include "collectives/lane.h"
#include "collectives/shm/group.h"

namespace gyre::internal {

class Operation : public Pollable {
 public:
  // `group` must live until the operation is done: whoever makes an asynchronous one holds it (see Hold).
  Operation(Group& group, Channel& channel, shm::Signature signature, std::chrono::milliseconds timeout)
      : group_(group), channel_(channel), signature_(signature), timeout_(timeout) {}

  shm::Progress Poll() final;
  bool Check(TimePoint now) final;

  // From now on the operation keeps its group alive, and its time runs.
  void Hold(std::shared_ptr<Group> group, TimePoint now);

  Channel& channel() const { return channel_; }

 protected:
  enum class Next { kRound, kEnd };

  // Writes this rank's part of round `round` (0, 1, ...) into meeting().mine(): payload and arena offsets.
  virtual void Publish(int64_t round) = 0;

  // All have published the round: reads meeting().slot(0 .. size - 1).
  virtual Next Consume(int64_t round) = 0;

  Group& group() const { return group_; }
  shm::Meeting& meeting() const { return channel_.meeting; }
  int size() const { return meeting().size(); }
  int rank() const { return meeting().self(); }

  // From Consume, with a status that all ranks reach alike: ends the operation, the group stays usable.
  Next Refuse(absl::Status status) {
    status_ = std::move(status);
    return Next::kEnd;
  }

 private:
  enum class State { kBefore, kPosted, kEnded };

  bool Begin();
  bool RefuseToBegin();
  void Post();
  bool Agreed();
  bool Fail(absl::Status status, int culprit);
  void End(absl::Status status);
  bool FindGivenUp();
  bool FindLost();
  bool FailLate();
  int Member(int channel_member) const;
  std::string Context() const;
  std::string MissingRanks(int* first);

  Group& group_;
  Channel& channel_;
  const shm::Signature signature_;
  const std::chrono::milliseconds timeout_;
  State state_ = State::kBefore;
  int64_t round_ = 0;
  int64_t call_ = 0;
  TimePoint deadline_{};  // set at the first Check, or by Hold: a call that ends at once never reads the clock
  std::shared_ptr<Group> held_;
};

// "allreduce(f32, 1000 elements, sum)".
std::string Describe(const shm::Signature& signature);

}  // namespace gyre::internal
