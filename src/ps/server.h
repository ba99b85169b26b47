// Server: one parameter server as a state machine. Whoever runs it hands it what arrives, and time; it answers through
// its network and writes snapshots to its disk. docs/parameter_server.md says what it promises.
//
// Not thread-safe. Calls block as the disk does, and no longer. No message makes it fail.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "ps/interfaces.h"
#include "ps/layout.h"
#include "ps/options.h"
#include "ps/pull_codec.h"
#include "ps/push_codec.h"
#include "ps/replica.h"
#include "ps/roster.h"
#include "ps/shard.h"
#include "ps/snapshot.h"

namespace gyre::ps {

// A push that changed the values.
struct AppliedPush {
  int slot = 0;
  int worker = 0;
  uint64_t incarnation = 0;  // of the worker
  uint64_t sequence = 0;
};

struct ServerOptions {
  int server = 0;
  uint64_t epoch = 0;        // the job's
  uint64_t incarnation = 1;  // how often this server was started, from 1
  Consistency consistency{};
  Rule rule = Sgd{};
  Timing timing{};
  int workers = 1;  // that must have joined before the first step; those that come later join where the others are
  Duration snapshot_interval = std::chrono::seconds(10);                // or 20 times as long as the last one took
  compression::PayloadKind values_as = compression::PayloadKind::kF32;  // how values are sent (IsForValues)
  // Its state is also held by the next server, and it holds that of the one before (ps/replica.h), whom it reaches
  // through `ring`, which outlives it. Null: nobody does.
  Network* ring = nullptr;
  size_t piece_bytes = size_t{1} << 20;  // of a state, in one message between servers
  Guards guards{};
  MakeFloats make = MakePrivate;                                                // memory for values
  std::function<void(const AppliedPush&)> applied = [](const AppliedPush&) {};  // for timelines and tests
};

class Server {
 public:
  // Goes on from the snapshot, if there is one: workers that were members then are given a time-out to come back.
  // What is given by reference outlives it. Errors: see Snapshots::Open and Shard::Create; kDataLoss also where the
  // snapshot is of another layout; kInvalidArgument where there is a ring of one.
  static absl::StatusOr<std::unique_ptr<Server>> Start(ServerOptions options, const Layout& layout, const Clock& clock,
                                                       Network& network, Disk& disk);
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // A message from a worker (net/handshake.h has proved that it is this one).
  void Receive(int worker, const Message& message);

  // Of a worker's process, by whoever runs this. It lives: bytes have come from it, or the system says so. And: no
  // connection with it is left, which is its end unless it is heard again soon.
  void Hear(int worker, uint64_t incarnation);
  void Lose(int worker, uint64_t incarnation);

  // A message from a neighbour in the ring. REQUIRES: a ring
  void ReceiveFromServer(Side side, const Message& message);

  // A way to the next server has opened: what is to be said to it is said at once. REQUIRES: a ring
  void ReachNext();

  // To be called when NextTick() has come; earlier does no harm. Between two calls all that has arrived is to be
  // received: who is silent is judged here, and by how long this server has listened.
  void Tick();
  TimePoint NextTick() const;

  // Takes a snapshot now if anything changed. Also part of Tick; errors are kept for disk_status() and tried again.
  absl::Status Snapshot();

  // OK while snapshots succeed; training goes on without. kAborted: another process has taken this one's place; it
  // answers nobody any more.
  const absl::Status& disk_status() const { return disk_status_; }

  const Roster& roster() const { return roster_; }
  const Shard& shard(int slot) const { return shards_[static_cast<size_t>(slot)]; }
  uint64_t snapshot_number() const { return snapshots_.number(); }

  // Of the server before; null without a ring, or where that one has no partitions.
  const Follower* follower() const { return follower_ ? &*follower_ : nullptr; }
  bool recovering() const { return recovery_.has_value(); }  // until the next server has said what it has
  bool recovered() const { return recovered_; }              // its state came from the next server
  uint64_t position() const { return forwarder_ ? forwarder_->position() : 0; }  // the last change of its state

 private:
  Server(ServerOptions options, const Layout& layout, const Clock& clock, Network& network, Disk& disk);

  absl::StatusOr<std::vector<Shard>> MakeShards(int server, const MakeFloats& make) const;
  absl::Status Load();
  absl::Status Restore(std::string_view content);
  std::string Content() const;

  void Refuse(int worker, const Message& message, bool fenced, const std::string& text);
  void Hello(int worker, const Message& message);
  void Welcome(int worker);
  void Join(int worker, const Message& message);
  void Heartbeat(int worker, const Message& message);
  void Init(const Message& message);
  void Push(int worker, const Message& message);
  std::optional<Gradient> GradientOf(int worker, const Message& message);
  void Pull(int worker, const Message& message);
  void PullRows(int worker, const Message& message);
  void AnswerRows(int slot, std::optional<uint64_t> least);
  void Pulse();
  void Attend();
  void Moved();  // after clocks or members have changed
  void MovedIn(int slot);
  void SendValues(int worker, int slot, uint64_t clock);
  void Send(int worker, Message message);
  bool AllHaveValues() const;
  int Slowest() const;
  Shard::Applied AppliedIn(int slot);

  // With a ring: server_replication.cc.
  absl::Status EnterRing();
  void Forward(Message change);
  void ForwardRoster();
  uint64_t Acknowledged(int slot, int worker) const;
  Forwarder::State WholeState() const;
  void Confirmed(const Message& confirm);
  void Recovered();
  bool HoldsPlace();
  void BecomeReady();

  const ServerOptions options_;
  const Layout& layout_;
  const Clock& clock_;
  Network& network_;
  Snapshots snapshots_;
  Roster roster_;
  std::vector<Shard> shards_;  // by slot
  PushDecoder decoder_;
  std::vector<ValueEncoder> encoders_;            // by slot
  std::vector<std::map<int, uint64_t>> waiting_;  // by slot: which step's values a worker waits for
  struct RowsAsked {
    uint64_t incarnation = 0;  // of the worker
    uint64_t clock = 0, question = 0;
    Floats ids{};
  };
  std::vector<std::map<int, RowsAsked>> rows_asked_;  // by slot: which rows a worker waits for
  TimePoint attended_{};                              // when Tick was called last
  TimePoint next_pulse_{};
  TimePoint next_snapshot_{};
  bool changed_ = false;  // since the last snapshot
  bool founded_ = false;  // all partitions have values, and a snapshot of them was tried
  bool lost_ = false;     // another process of it had values, and this one has none
  bool ready_ = false;    // and, with a ring, the next server has had them: pushes are taken
  absl::Status disk_status_;
  std::optional<Forwarder> forwarder_;  // with partitions and a ring
  std::optional<Recovery> recovery_;    // and until its state is known
  std::optional<Follower> follower_;
  bool recovered_ = false;
  std::string forwarded_roster_;
};

}  // namespace gyre::ps
