#include "collectives/executor.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <iterator>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "collectives/block_checksum.h"
#include "collectives/call.h"

namespace gyre::internal {

namespace {

// What is sent at least at once of a block that still arrives: smaller pieces cost more system calls than they win.
constexpr int64_t kGrainBytes = 64 << 10;

// What is received at most at once of a block to be reduced: it should still be in cache then.
constexpr int64_t kReduceBytes = 128 << 10;

// A stream that keeps flowing gives the others a turn after this much.
constexpr int64_t kTurnBytes = 1 << 20;

constexpr int kNone = -1;

}  // namespace

// A step and how far it has come.
struct Executor::StepState {
  Step::Kind kind;
  MutableBytes block;
  Bytes source;          // what is sent, or combined with what arrives: the block, or its contents at first
  int previous = kNone;  // the step before it on the same block
  uint32_t index = 0;    // among the steps of its direction with its peer
  int64_t done = 0;      // bytes
  bool ended = false;
};

// The steps of one direction with one peer, in order, and the header of the one in course.
struct Executor::Direction {
  std::vector<int> steps;
  size_t next = 0;
  EncodedStepHeader header{};
  size_t header_done = 0;  // bytes of the header sent or received
  bool checked = false;    // the block in course is followed by a checksum
  BlockChecksum sum;
  BlockChecksum::Encoded checksum{};
  size_t checksum_done = 0;
  bool blocked = false;  // by the stream, at the last look

  // After all steps. All else is as at first by then.
  void Restart() {
    steps.clear();
    next = 0;
    blocked = false;
  }
  bool pending() const { return next < steps.size(); }
  int current() const { return steps[next]; }
  bool complete() const { return header_done == kStepHeaderBytes && (!checked || checksum_done == checksum.size()); }
};

struct Executor::Peer {
  int number = 0;  // in the schedule
  int rank = 0;    // in the job
  Direction send;
  Direction receive;
  std::unique_ptr<std::byte[]> arrived;  // of a block to be reduced: received, not yet reduced
  int64_t arrived_bytes = 0;

  bool awaited() const { return (send.pending() && send.blocked) || (receive.pending() && receive.blocked); }
};

Executor::Executor(Streams& streams, ExecutorPlan plan) : streams_(&streams) {
  Restart(streams, std::move(plan));
}

void Executor::Restart(Streams& streams, ExecutorPlan plan) {
  streams_ = &streams;
  plan_ = std::move(plan);
  element_ = DTypeSize(plan_.reduction.dtype);
  steps_.clear();
  std::ranges::move(peers_, std::back_inserter(spare_peers_));
  peers_.clear();
  by_number_.assign(plan_.ranks.size(), nullptr);
  last_on_block_.assign(plan_.blocks.size(), kNone);
  if (plan_.sources.empty()) {
    contents_.assign(plan_.blocks.begin(), plan_.blocks.end());
  } else {
    contents_.assign(plan_.sources.begin(), plan_.sources.end());
  }
  for (const Step& step : plan_.schedule.steps) {
    Peer& peer = PeerOf(step.peer);
    Direction& direction = step.kind == Step::Kind::kSend ? peer.send : peer.receive;
    const auto block = static_cast<size_t>(step.block);
    const int number = static_cast<int>(steps_.size());
    steps_.push_back({.kind = step.kind,
                      .block = plan_.blocks[block],
                      .source = contents_[block],
                      .previous = std::exchange(last_on_block_[block], number),
                      .index = static_cast<uint32_t>(direction.steps.size())});
    direction.steps.push_back(number);
    if (step.kind != Step::Kind::kSend) contents_[block] = plan_.blocks[block];
    if (step.kind == Step::Kind::kReceiveReduce && peer.arrived == nullptr) {
      peer.arrived = std::make_unique_for_overwrite<std::byte[]>(kReduceBytes);
    }
  }
  unfinished_ = steps_.size();
}

// A new one at its first step.
Executor::Peer& Executor::PeerOf(int number) {
  Peer*& peer = by_number_[static_cast<size_t>(number)];
  if (peer != nullptr) return *peer;
  if (spare_peers_.empty()) spare_peers_.push_back(std::make_unique<Peer>());
  peer = peers_.emplace_back(std::move(spare_peers_.back())).get();
  spare_peers_.pop_back();
  peer->number = number;
  peer->rank = plan_.ranks[static_cast<size_t>(number)];
  peer->send.Restart();
  peer->receive.Restart();
  return *peer;
}

Executor::~Executor() = default;

shm::Progress Executor::Poll() {
  if (!status_.ok() || unfinished_ == 0) return shm::Progress::kDone;
  bool moved = false;
  for (const auto& peer : peers_) {
    if (PollPeer(*peer)) moved = true;
    if (!status_.ok()) return shm::Progress::kDone;
  }
  if (unfinished_ == 0) return shm::Progress::kDone;
  return moved ? shm::Progress::kSome : shm::Progress::kNone;
}

bool Executor::PollPeer(Peer& peer) {
  const bool received = Receive(peer);
  if (!status_.ok()) return received;
  return Send(peer) || received;
}

// A step begins when the one before it on its block has come anywhere; of empty blocks, when that has ended.
bool Executor::MayBegin(const StepState& step) const {
  if (step.previous == kNone) return true;
  const StepState& previous = steps_[static_cast<size_t>(step.previous)];
  return previous.ended || previous.done > 0;
}

// How far it may go.
int64_t Executor::Limit(const StepState& step) const {
  if (step.previous == kNone) return static_cast<int64_t>(step.block.size());
  const StepState& previous = steps_[static_cast<size_t>(step.previous)];
  return previous.ended ? static_cast<int64_t>(step.block.size()) : previous.done;
}

// How far a send may go. The last byte waits until all that arrived on the block before has proved whole: whoever gets
// a block to its end gets no damage that a checksum has shown. Empty blocks wait in MayBegin.
int64_t Executor::SendLimit(const StepState& step) const {
  const int64_t limit = Limit(step);
  if (limit < static_cast<int64_t>(step.block.size())) return limit;
  return HasArrived(step.previous) ? limit : limit - 1;
}

// Whether the step and those before it on its block have received all they should, and their checksums were right.
bool Executor::HasArrived(int number) const {
  for (; number != kNone; number = steps_[static_cast<size_t>(number)].previous) {
    const StepState& step = steps_[static_cast<size_t>(number)];
    if (step.kind != Step::Kind::kSend && !step.ended) return false;
  }
  return true;
}

StepHeader Executor::HeaderOf(const StepState& step) const {
  return {.channel = plan_.channel,
          .call = plan_.call,
          .signature = plan_.signature,
          .index = step.index,
          .bytes = static_cast<int64_t>(step.block.size()),
          .checksum = plan_.checksum};
}

void Executor::Finish(StepState& step, Direction& direction) {
  step.ended = true;
  ++direction.next;
  direction.header_done = 0;
  direction.checksum_done = 0;
  --unfinished_;
}

bool Executor::Send(Peer& peer) {
  bool moved = false;
  peer.send.blocked = false;
  for (int64_t turn = 0; peer.send.pending() && turn < kTurnBytes;) {
    StepState& step = steps_[static_cast<size_t>(peer.send.current())];
    if (!MayBegin(step)) break;
    const int64_t before = step.done;
    if (!SendSome(peer, step)) break;
    turn += step.done - before;
    moved = true;
  }
  return moved;
}

// One piece of the header and the block. False: nothing went.
bool Executor::SendSome(Peer& peer, StepState& step) {
  Direction& direction = peer.send;
  const auto size = static_cast<int64_t>(step.block.size());
  const int64_t limit = SendLimit(step);
  const bool header_left = direction.header_done < kStepHeaderBytes;
  if (!header_left && limit - step.done < kGrainBytes && limit < size) return false;
  if (direction.header_done == 0) StartBlock(direction, step);
  const Bytes data = step.source.subspan(static_cast<size_t>(step.done), static_cast<size_t>(limit - step.done));
  std::array<Bytes, 2> pieces = {Bytes(direction.header).subspan(direction.header_done), data};
  if (!header_left && step.done == size) {
    if (direction.checksum_done == 0) direction.checksum = direction.sum.Finish();
    pieces[1] = Bytes(direction.checksum).subspan(direction.checksum_done);
  }
  const auto written = streams_->Write(peer.rank, header_left ? std::span(pieces) : std::span(pieces).subspan(1));
  if (!written.ok()) return Fail(peer, written.status());
  direction.blocked = *written == 0;
  if (direction.blocked) return false;
  const size_t of_header = std::min(*written, kStepHeaderBytes - direction.header_done);
  direction.header_done += of_header;
  if (!header_left && step.done == size) {
    direction.checksum_done += *written;
  } else {
    if (direction.checked) direction.sum.Add(data.first(*written - of_header));
    step.done += static_cast<int64_t>(*written - of_header);
  }
  if (step.done == size && direction.complete()) Finish(step, direction);
  return true;
}

void Executor::StartBlock(Direction& direction, const StepState& step) {
  direction.header = Encode(HeaderOf(step));
  direction.checked = plan_.checksum;
  if (direction.checked) direction.sum.Start();
}

bool Executor::Receive(Peer& peer) {
  bool moved = false;
  peer.receive.blocked = false;
  for (int64_t turn = 0; peer.receive.pending() && turn < kTurnBytes;) {
    StepState& step = steps_[static_cast<size_t>(peer.receive.current())];
    const int64_t before = step.done, size = static_cast<int64_t>(step.block.size());
    bool more = false;
    if (peer.receive.header_done < kStepHeaderBytes) {
      more = ReceiveHeader(peer, step);
    } else if (step.done < size) {
      more = step.kind == Step::Kind::kReceive ? ReceiveInPlace(peer, step) : ReceiveAndReduce(peer, step);
    } else if (!peer.receive.complete()) {
      more = ReceiveChecksum(peer);
    }
    if (!status_.ok()) return moved;
    const bool complete = peer.receive.complete() && MayBegin(step) && step.done == size;
    if (complete) Finish(step, peer.receive);
    if (!more && !complete) break;
    turn += step.done - before;
    moved = true;
  }
  return moved;
}

// Each of the four: false if nothing came, or nothing could be used.

bool Executor::ReceiveHeader(Peer& peer, const StepState& step) {
  Direction& direction = peer.receive;
  const auto got = streams_->Read(peer.rank, MutableBytes(direction.header).subspan(direction.header_done));
  if (!got.ok()) return Fail(peer, got.status());
  direction.blocked = *got == 0;
  direction.header_done += *got;
  if (direction.header_done == kStepHeaderBytes) Check(peer, step);
  return *got > 0;
}

bool Executor::ReceiveChecksum(Peer& peer) {
  Direction& direction = peer.receive;
  const auto got = streams_->Read(peer.rank, MutableBytes(direction.checksum).subspan(direction.checksum_done));
  if (!got.ok()) return Fail(peer, got.status());
  direction.blocked = *got == 0;
  direction.checksum_done += *got;
  if (direction.complete() && direction.checksum != direction.sum.Finish()) {
    return Fail(peer, absl::DataLossError(absl::StrCat("a block from ", plan_.names[static_cast<size_t>(peer.number)],
                                                       " was damaged on its way")));
  }
  return *got > 0;
}

bool Executor::ReceiveInPlace(Peer& peer, StepState& step) {
  const int64_t limit = Limit(step);
  if (step.done == limit) return false;
  const auto got = streams_->Read(
      peer.rank, step.block.subspan(static_cast<size_t>(step.done), static_cast<size_t>(limit - step.done)));
  if (!got.ok()) return Fail(peer, got.status());
  peer.receive.blocked = *got == 0;
  if (peer.receive.checked) {
    peer.receive.sum.Add(Bytes(step.block).subspan(static_cast<size_t>(step.done), *got));
  }
  step.done += static_cast<int64_t>(*got);
  return *got > 0;
}

bool Executor::ReceiveAndReduce(Peer& peer, StepState& step) {
  const int64_t expected = static_cast<int64_t>(step.block.size()) - step.done - peer.arrived_bytes;
  const int64_t room = std::min(expected, kReduceBytes - peer.arrived_bytes);
  bool moved = false;
  if (room > 0) {
    const auto got =
        streams_->Read(peer.rank, MutableBytes(peer.arrived.get() + peer.arrived_bytes, static_cast<size_t>(room)));
    if (!got.ok()) return Fail(peer, got.status());
    peer.receive.blocked = *got == 0;
    if (peer.receive.checked) peer.receive.sum.Add(Bytes(peer.arrived.get() + peer.arrived_bytes, *got));
    peer.arrived_bytes += static_cast<int64_t>(*got);
    moved = *got > 0;
  }
  const int64_t usable = std::min(peer.arrived_bytes, Limit(step) - step.done) / element_ * element_;
  if (usable > 0) {
    void* const into = step.block.data() + step.done;
    // The lower rank's first, on both sides of an exchange: the maximum of 0 and -0, for one, depends on the order.
    std::array<const void*, 2> sources = {step.source.data() + step.done, peer.arrived.get()};
    if (peer.number < plan_.self) std::swap(sources[0], sources[1]);
    device::Reduce(plan_.reduction, sources, {&into, 1}, usable / element_);
    step.done += usable;
    peer.arrived_bytes -= usable;
    std::memmove(peer.arrived.get(), peer.arrived.get() + usable, static_cast<size_t>(peer.arrived_bytes));
    moved = true;
  }
  return moved;
}

// Whether the header that came is the one that is due.
void Executor::Check(Peer& peer, const StepState& step) {
  const auto header = DecodeStepHeader(peer.receive.header);
  const std::string& name = plan_.names[static_cast<size_t>(peer.number)];
  if (!header.ok()) {
    Fail(peer, absl::DataLossError(absl::StrCat("what ", name, " sent is damaged")));
    return;
  }
  StepHeader due = HeaderOf(step);
  due.checksum = header->checksum;  // the sender's choice
  if (*header == due) {
    peer.receive.checked = header->checksum;
    if (peer.receive.checked) peer.receive.sum.Start();
    return;
  }
  if (header->signature != due.signature) {
    Fail(peer, absl::InvalidArgumentError(
                   Disagreement(plan_.names[static_cast<size_t>(plan_.self)], due.signature, name, header->signature)));
  } else if (header->channel == due.channel && header->call == due.call && header->index == due.index) {
    Fail(peer, absl::InvalidArgumentError(absl::StrCat(name, " sends ", header->bytes, " bytes to ",
                                                       plan_.names[static_cast<size_t>(plan_.self)], ", which expects ",
                                                       due.bytes)));
  } else {
    Fail(peer,
         absl::DataLossError(absl::StrCat(name, " is out of step: block ", header->index, " of call ", header->call,
                                          " came, block ", due.index, " of call ", due.call, " was due")));
  }
}

bool Executor::Fail(const Peer& peer, absl::Status status) {
  status_ = std::move(status);
  failed_peer_ = peer.rank;
  return false;
}

std::vector<int> Executor::Awaited() const {
  std::vector<int> ranks;
  for (const auto& peer : peers_) {
    if (peer->awaited()) ranks.push_back(peer->rank);
  }
  return ranks;
}

int Executor::FirstAwaited() const {
  const auto first = std::ranges::find_if(peers_, [](const auto& peer) { return peer->awaited(); });
  return first == peers_.end() ? -1 : (*first)->rank;
}

int Executor::SilentPeer() const {
  for (const auto& peer : peers_) {
    const Direction& receive = peer->receive;
    if (receive.pending() && receive.blocked && receive.next == 0 && receive.header_done == 0) return peer->rank;
  }
  return -1;
}

void Executor::AddWaits(std::vector<pollfd>& waits) const {
  for (const auto& peer : peers_) {
    const bool sends = peer->send.pending() && peer->send.blocked;
    const bool receives = peer->receive.pending() && peer->receive.blocked;
    if (sends || receives) streams_->AddWaits(peer->rank, receives, sends, waits);
  }
}

}  // namespace gyre::internal
