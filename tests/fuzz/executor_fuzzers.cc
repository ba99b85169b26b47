// Step headers, and the executor fed by streams that follow a script: what the peers of a random schedule send, right
// or changed, in pieces of any size.
#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <memory>

#include "collectives/block_checksum.h"
#include "collectives/call.h"
#include "collectives/executor.h"
#include "collectives/step_header.h"
#include "fuzzers.h"
#include "transport/streams.h"

namespace gyre::fuzz {

using namespace internal;

namespace {

constexpr size_t kCheckedBytes = kStepHeaderBytes - sizeof(uint32_t);

StepHeader RandomStepHeader(Mutator& random) {
  return {.channel = random.Number(),
          .call = random.Number(),
          .signature = {static_cast<uint8_t>(random.Below(12)), static_cast<uint8_t>(random.Below(14)),
                        static_cast<uint8_t>(random.Below(8)), 0, static_cast<int32_t>(random.Number()),
                        static_cast<int64_t>(random.Number()), random.Number()},
          .index = static_cast<uint32_t>(random.Number()),
          .bytes = static_cast<int64_t>(random.Number() >> 1),
          .checksum = random.OneIn(2)};
}

void ResealHeader(char* header) {
  const auto checksum = static_cast<uint32_t>(XXH3_64bits(header, kCheckedBytes));
  std::memcpy(header + kCheckedBytes, &checksum, sizeof(checksum));
}

EncodedStepHeader ToHeader(std::string_view text) {
  EncodedStepHeader bytes;
  std::memcpy(bytes.data(), text.data(), bytes.size());
  return bytes;
}

}  // namespace

std::string FuzzStepHeader(Mutator& random) {
  const StepHeader header = RandomStepHeader(random);
  const std::string original(AsText(Encode(header)));
  std::string text = original;
  if (random.OneIn(2)) text = random.MutatedInPlace(std::move(text));
  if (random.OneIn(2)) ResealHeader(text.data());
  const auto decoded = DecodeStepHeader(ToHeader(text));
  if (text == original && (!decoded.ok() || *decoded != header)) return "did not decode what was encoded";
  if (!decoded.ok()) return absl::IsDataLoss(decoded.status()) ? "" : "another error than kDataLoss";
  if (Describe(decoded->signature).empty()) return "no words for a signature";
  return AsText(Encode(*decoded)) == text ? "" : "decoded something else";
}

namespace {

// Gives and takes bytes in pieces of any size, at times none; when the script is at its end, so is the stream.
class ScriptedStreams final : public Streams {
 public:
  struct Peer {
    std::string script;       // what it sends
    std::string received;     // what it was sent
    size_t read = 0;          // of the script
    size_t takes = SIZE_MAX;  // bytes, then its stream ends
  };

  explicit ScriptedStreams(Mutator& random) : random_(random) {}
  Peer& operator[](int rank) { return peers_[rank]; }
  int64_t moved() const { return moved_; }  // bytes, both ways

  absl::StatusOr<size_t> Write(int rank, std::span<const Bytes> pieces) override {
    Peer& peer = peers_.at(rank);
    size_t room = Piece();
    size_t taken = 0;
    for (const Bytes piece : pieces) {
      const Bytes part = piece.first(std::min(piece.size(), room));
      peer.received += AsText(part);
      room -= part.size();
      taken += part.size();
    }
    if (peer.received.size() > peer.takes) return absl::UnavailableError("it has gone");
    moved_ += static_cast<int64_t>(taken);
    return taken;
  }

  absl::StatusOr<size_t> Read(int rank, MutableBytes into) override {
    Peer& peer = peers_.at(rank);
    if (peer.read == peer.script.size()) return absl::UnavailableError("it has gone");
    const size_t size = std::min({Piece(), into.size(), peer.script.size() - peer.read});
    std::memcpy(into.data(), peer.script.data() + peer.read, size);
    peer.read += size;
    moved_ += static_cast<int64_t>(size);
    return size;
  }

  void AddWaits(int, bool, bool, std::vector<pollfd>&) const override {}

 private:
  size_t Piece() { return random_.OneIn(4) ? 0 : random_.OneIn(2) ? 1 + random_.Below(100) : size_t{1} << 20; }

  Mutator& random_;
  std::map<int, Peer> peers_;
  int64_t moved_ = 0;
};

// A block with memory around it that nobody may touch.
class GuardedBlock {
 public:
  explicit GuardedBlock(const std::string& content) : bytes_(kGuard + content + kGuard) {}
  MutableBytes bytes() { return AsMutableBytes(bytes_).subspan(kGuard.size(), size()); }
  std::string content() const { return bytes_.substr(kGuard.size(), size()); }
  bool whole() const { return bytes_.starts_with(kGuard) && bytes_.ends_with(kGuard); }

 private:
  size_t size() const { return bytes_.size() - 2 * kGuard.size(); }
  inline static const std::string kGuard = std::string(48, '\xa5');
  std::string bytes_;
};

constexpr int kSelf = 1;

class ExecutorRound {
 public:
  explicit ExecutorRound(Mutator& random) : random_(random), streams_(random) {}

  std::string Run() {
    MakePlan();
    MakeScripts();
    const bool changed = Change();
    Executor executor(streams_, plan_);
    if (std::string wrong = Drive(executor); !wrong.empty()) return wrong;
    if (std::string wrong = CheckEnd(executor); !wrong.empty()) return wrong;
    if (changed) return must_fail_ && executor.status().ok() ? "took another header for the one that is due" : "";
    return executor.status().ok() ? CheckResult()
                                  : "failed without a cause: " + std::string(executor.status().message());
  }

 private:
  void MakePlan() {
    const int size = 2 + static_cast<int>(random_.Below(4));
    plan_.self = kSelf;
    for (int rank = 0; rank < size; ++rank) {
      plan_.ranks.push_back(10 + rank);
      plan_.names.push_back("rank " + std::to_string(10 + rank));
    }
    plan_.reduction = device::MakeReduction(static_cast<DType>(random_.Below(kDTypeCount)),
                                            static_cast<ReduceOp>(random_.Below(kReduceOpCount)), 1.0, 1.0, size);
    // So that what must come out is plain to compute; all others are for what may go wrong.
    if (random_.OneIn(2)) plan_.reduction = device::MakeReduction(DType::kU8, ReduceOp::kSum, 1.0, 1.0, size);
    plan_.channel = 5;
    plan_.call = 9;
    plan_.checksum = random_.OneIn(2);
    plan_.signature = {.kind = 1, .dtype = static_cast<uint8_t>(plan_.reduction.dtype), .count = 77};
    const auto element = static_cast<size_t>(DTypeSize(plan_.reduction.dtype));
    plan_.schedule.blocks = 1 + static_cast<int>(random_.Below(4));
    for (int block = 0; block < plan_.schedule.blocks; ++block) {
      const size_t most = random_.OneIn(300) ? 300'000 : 400;
      blocks_.emplace_back(random_.RandomBytes(random_.Below(most) / element * element));
    }
    for (GuardedBlock& block : blocks_) plan_.blocks.push_back(block.bytes());
    for (uint64_t steps = 1 + random_.Below(12); steps > 0; --steps) {
      const int peer = static_cast<int>(random_.Below(static_cast<uint64_t>(size) - 1));
      plan_.schedule.steps.push_back({static_cast<Step::Kind>(random_.Below(3)), peer < kSelf ? peer : peer + 1,
                                      static_cast<int>(random_.Below(blocks_.size()))});
    }
  }

  // With its header, and with a checksum if asked.
  std::string Framed(uint32_t index, const std::string& data, bool checksum) const {
    const EncodedStepHeader header = Encode(StepHeader{.channel = plan_.channel,
                                                       .call = plan_.call,
                                                       .signature = plan_.signature,
                                                       .index = index,
                                                       .bytes = static_cast<int64_t>(data.size()),
                                                       .checksum = checksum});
    BlockChecksum sum;
    sum.Start();
    sum.Add(AsBytes(data));
    const BlockChecksum::Encoded end = sum.Finish();
    return std::string(AsText(header)).append(data).append(checksum ? AsText(end) : "");
  }

  // What the peers send, and with it what must come of it: steps on a block happen in their order.
  void MakeScripts() {
    std::map<int, uint32_t> sends, receives;
    for (const GuardedBlock& block : blocks_) expected_.push_back(block.content());
    for (const Step& step : plan_.schedule.steps) {
      const int rank = plan_.ranks[static_cast<size_t>(step.peer)];
      std::string& block = expected_[static_cast<size_t>(step.block)];
      if (step.kind == Step::Kind::kSend) {
        expected_sent_[rank] += Framed(sends[step.peer]++, block, plan_.checksum);
        continue;
      }
      const std::string data = random_.RandomBytes(block.size());
      headers_.emplace_back(rank, streams_[rank].script.size());
      streams_[rank].script += Framed(receives[step.peer]++, data, random_.OneIn(2));
      for (size_t i = 0; i < block.size(); ++i) {
        block[i] = static_cast<char>(step.kind == Step::Kind::kReceive ? data[i] : block[i] + data[i]);
      }
    }
    for (const int rank : plan_.ranks) streams_[rank];
  }

  // Whether anything is not as it should be.
  bool Change() {
    if (random_.OneIn(3)) return false;
    auto& peer = streams_[plan_.ranks[random_.OneIn(2) ? 0 : 2 % plan_.ranks.size()]];
    switch (random_.Below(4)) {
      case 0: peer.takes = random_.Below(500); break;
      case 1: peer.script = random_.Mutated(std::move(peer.script)); break;
      case 2: peer.script = random_.MutatedInPlace(std::move(peer.script)); break;
      default: {
        if (headers_.empty()) return false;
        const auto& [rank, at] = headers_[random_.Below(headers_.size())];
        std::string& script = streams_[rank].script;
        StepHeader due = *DecodeStepHeader(ToHeader(std::string_view(script).substr(at)));
        script.replace(at, kStepHeaderBytes, random_.MutatedInPlace(script.substr(at, kStepHeaderBytes)));
        ResealHeader(script.data() + at);
        const auto came = DecodeStepHeader(ToHeader(std::string_view(script).substr(at)));
        if (came.ok()) due.checksum = came->checksum;  // either is right; what follows is not, then
        must_fail_ = !came.ok() || *came != due;
      }
    }
    return true;
  }

  // Until it has ended. Each turn that says it got somewhere must have moved a byte, ended a step, or combined what
  // had come before.
  std::string Drive(Executor& executor) {
    int64_t idle = 0, some = 0;
    for (;;) {
      const int64_t before = streams_.moved();
      const shm::Progress progress = executor.Poll();
      if (progress == shm::Progress::kDone) return "";
      if (progress == shm::Progress::kSome && streams_.moved() == before) ++some;
      idle = streams_.moved() == before ? idle + 1 : 0;
      if (some > 4 * static_cast<int64_t>(plan_.schedule.steps.size())) return "claims to get somewhere";
      if (idle > 200) return "does not end";
      for (const int rank : executor.Awaited()) {
        if (rank < 10 || rank >= 10 + static_cast<int>(plan_.ranks.size())) return "waits for nobody";
      }
    }
  }

  std::string CheckEnd(Executor& executor) {
    const absl::Status& status = executor.status();
    for (const GuardedBlock& block : blocks_) {
      if (!block.whole()) return "wrote outside its blocks";
    }
    if (status.ok()) return executor.failed_peer() == -1 ? "" : "blames a rank for nothing";
    if (!absl::IsUnavailable(status) && !absl::IsInvalidArgument(status) && !absl::IsDataLoss(status)) {
      return "ended in " + status.ToString();
    }
    const int failed = executor.failed_peer();
    if (failed < 10 || failed == 10 + kSelf || failed >= 10 + static_cast<int>(plan_.ranks.size()))
      return "blames nobody";
    std::vector<std::string> before;
    for (const GuardedBlock& block : blocks_) before.push_back(block.content());
    if (executor.Poll() != shm::Progress::kDone) return "goes on after its end";
    for (size_t i = 0; i < blocks_.size(); ++i) {
      if (blocks_[i].content() != before[i]) return "wrote after its end";
    }
    return "";
  }

  std::string CheckResult() {
    for (const auto& [rank, bytes] : expected_sent_) {
      // Of a reduction that is not a plain sum only the size is known here.
      if (streams_[rank].received.size() != bytes.size()) return "sent another number of bytes";
    }
    if (plan_.reduction.dtype != DType::kU8 || plan_.reduction.op != ReduceOp::kSum) return "";
    for (size_t i = 0; i < blocks_.size(); ++i) {
      if (blocks_[i].content() != expected_[i]) return "the result is wrong";
    }
    for (const auto& [rank, bytes] : expected_sent_) {
      if (streams_[rank].received != bytes) return "sent something else";
    }
    return "";
  }

  Mutator& random_;
  ScriptedStreams streams_;
  ExecutorPlan plan_;
  std::deque<GuardedBlock> blocks_;
  bool must_fail_ = false;
  std::vector<std::pair<int, size_t>> headers_;  // rank, and where in its script
  std::vector<std::string> expected_;
  std::map<int, std::string> expected_sent_;
};

}  // namespace

std::string FuzzExecutor(Mutator& random) {
  return ExecutorRound(random).Run();
}

}  // namespace gyre::fuzz
