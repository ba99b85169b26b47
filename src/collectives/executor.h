// Executor: carries out one rank's schedule over streams. Data go straight from and into the blocks; what is to be
// reduced passes through a small buffer that stays in cache. A block is sent on while it still arrives, but to its end
// only once its checksum, if it has one, was right.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "collectives/schedule/schedule.h"
#include "collectives/step_header.h"
#include "device/reduce.h"
#include "net/bytes.h"
#include "transport/shm/waiter.h"
#include "transport/streams.h"

namespace gyre::internal {

// What one rank has to do, and with what memory.
struct ExecutorPlan {
  Schedule schedule;                 // this rank's
  std::vector<int> ranks;            // by the schedule's rank: the rank in the job
  std::vector<std::string> names;    // likewise: for messages
  int self = 0;                      // this rank in the schedule
  std::vector<MutableBytes> blocks;  // by block; of blocks that are only sent, nothing is written
  std::vector<Bytes> sources = {};   // by block: its contents at first; empty: they are in the blocks themselves
  device::Reduction reduction;       // of kReceiveReduce; blocks of a reduction hold whole elements
  uint64_t channel = 0;              // the three that all ranks must agree on
  uint64_t call = 0;
  Signature signature;
  bool checksum = false;  // of the data that this rank sends; what it receives says itself whether it has one
};

// One thread at a time. Never blocks.
class Executor {
 public:
  // `streams` and the blocks' memory must live until it is done.
  Executor(Streams& streams, ExecutorPlan plan);
  ~Executor();

  // It is used again, and takes new memory only where what it had does not suffice: Release gives its plan back, to be
  // filled anew. REQUIRES: it is done, with status() OK.
  ExecutorPlan Release() { return std::move(plan_); }
  void Restart(Streams& streams, ExecutorPlan plan);

  // Advances as far as that goes now. kDone: status() is final, and after an error no block is touched any more.
  shm::Progress Poll();

  // kUnavailable: the stream with failed_peer() has ended, says the streams' text.
  // kInvalidArgument: that rank is in another call; names both.
  // kDataLoss: what came is no header, not the block that is due, or damaged.
  const absl::Status& status() const { return status_; }
  int failed_peer() const { return failed_peer_; }  // in the job; -1 without an error

  // The ranks of the job that it waits for, to send or to receive.
  std::vector<int> Awaited() const;

  // The first of them; -1: there is none.
  int FirstAwaited() const;

  // The rank of the job of a peer that it waits for and that has sent nothing yet; -1: there is none.
  int SilentPeer() const;

  // What to wait for with poll(2); nothing where no descriptor tells.
  void AddWaits(std::vector<pollfd>& waits) const;

 private:
  struct StepState;
  struct Direction;
  struct Peer;

  Peer& PeerOf(int number);
  bool PollPeer(Peer& peer);
  bool Send(Peer& peer);
  bool SendSome(Peer& peer, StepState& step);
  void StartBlock(Direction& direction, const StepState& step);
  bool Receive(Peer& peer);
  bool ReceiveHeader(Peer& peer, const StepState& step);
  bool ReceiveChecksum(Peer& peer);
  bool ReceiveInPlace(Peer& peer, StepState& step);
  bool ReceiveAndReduce(Peer& peer, StepState& step);
  void Check(Peer& peer, const StepState& step);
  bool Fail(const Peer& peer, absl::Status status);
  StepHeader HeaderOf(const StepState& step) const;
  bool MayBegin(const StepState& step) const;
  int64_t Limit(const StepState& step) const;
  int64_t SendLimit(const StepState& step) const;
  bool HasArrived(int number) const;
  void Finish(StepState& step, Direction& direction);

  Streams* streams_;
  ExecutorPlan plan_;
  int64_t element_ = 1;
  std::vector<StepState> steps_;
  std::vector<std::unique_ptr<Peer>> peers_, spare_peers_;
  std::vector<Peer*> by_number_;    // these three: while it begins
  std::vector<int> last_on_block_;  //
  std::vector<Bytes> contents_;     //
  size_t unfinished_ = 0;
  absl::Status status_;
  int failed_peer_ = -1;
};

}  // namespace gyre::internal
