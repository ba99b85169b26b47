#include "collectives/gpu/fake_nccl.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "gtest/gtest.h"
#include "gyre/status_macros.h"

namespace gyre {

using internal::nccl::Combination;
using internal::nccl::Comm;
using internal::nccl::Transfer;
using internal::nccl::UniqueId;
using Kind = Transfer::Kind;

class FakeComm final : public Comm {
 public:
  FakeComm(FakeNccl& nccl, std::shared_ptr<FakeNccl::Clique> clique, int rank)
      : nccl_(nccl), clique_(std::move(clique)), rank_(rank) {
    ++nccl_.alive;
  }

  ~FakeComm() override {
    std::lock_guard lock(nccl_.mutex_);
    ExpectNoGraphs();
    EXPECT_TRUE(registered_.empty()) << "rank " << rank_ << "'s communicator ends with registered memory";
    clique_->comms[static_cast<size_t>(rank_)] = nullptr;
    --nccl_.alive;
  }

  absl::StatusOr<void*> Register(void* memory, int64_t bytes) override {
    std::lock_guard lock(nccl_.mutex_);
    EXPECT_TRUE(connected_ && !aborted_ && !finalized_ && clique_->done >= launched_) << "of rank " << rank_;
    const auto piece = nccl_.pieces_.find(memory);
    EXPECT_TRUE(piece != nccl_.pieces_.end() && piece->second == bytes);
    EXPECT_TRUE(registered_.emplace(memory, bytes).second) << "registered twice";
    ++nccl_.registrations;
    ++nccl_.registered;
    return memory;
  }

  absl::Status Deregister(void* handle) override {
    std::lock_guard lock(nccl_.mutex_);
    EXPECT_TRUE(connected_ && !aborted_ && !finalized_ && clique_->done >= launched_) << "of rank " << rank_;
    ExpectNoGraphs();
    EXPECT_EQ(registered_.erase(handle), 1u);
    --nccl_.registered;
    return absl::OkStatus();
  }

  // Where the byte lies in what is registered: bytes and offset; none: {}.
  std::pair<int64_t, int64_t> PlaceOf(const void* data) const {
    auto after = registered_.upper_bound(data);
    if (data == nullptr || after == registered_.begin()) return {};
    const auto& [begin, bytes] = *--after;
    const int64_t offset = static_cast<const char*>(data) - static_cast<const char*>(begin);
    return offset < bytes ? std::pair(bytes, offset) : std::pair<int64_t, int64_t>();
  }
  bool HasRegistered(const void* memory) const { return registered_.contains(memory); }

  absl::StatusOr<bool> Poll() override {
    std::lock_guard lock(nccl_.mutex_);
    EXPECT_FALSE(aborted_) << "of rank " << rank_;
    if (const auto broken = nccl_.broken_.find(rank_); broken != nccl_.broken_.end()) return broken->second;
    if (finalized_) return std::ranges::count(clique_->ended, false) == 0;
    if (!connected_) {
      connected_ = !nccl_.never_connects && std::ranges::count(clique_->comms, nullptr) == 0;
      return connected_;
    }
    return !nccl_.never_launches && clique_->done >= launched_;
  }

  // What is captured is told to the graph without the lock, which launches of graphs take.
  absl::StatusOr<bool> Launch(std::span<const Transfer> group, void* stream) override {
    const auto graph = nccl_.gpu_.CapturedInto(stream);
    std::shared_ptr<FakeNccl::Captured> captured;
    {
      std::lock_guard lock(nccl_.mutex_);
      EXPECT_TRUE(connected_ && !aborted_ && !finalized_ && clique_->done >= launched_) << "of rank " << rank_;
      ++nccl_.launches;
      if (graph == nullptr) FakeNccl::NoteOrder(*clique_, rank_, launched_);
      captured = LaunchLocked({{group.begin(), group.end()}, stream, graph != nullptr});
    }
    if (graph == nullptr) return false;
    const auto held = std::make_shared<int>();
    held_.push_back(held);
    RETURN_IF_ERROR(graph->Add([this, held, captured](device::Gpu::Stream launched_on) {
      return nccl_.Replay(*clique_, *captured, rank_, launched_on);
    }));
    return false;
  }

  absl::StatusOr<bool> Finalize() override {
    std::lock_guard lock(nccl_.mutex_);
    ExpectNoGraphs();
    finalized_ = true;
    clique_->ended[static_cast<size_t>(rank_)] = true;
    ++nccl_.finalized;
    return false;
  }

  void Abort() override {
    std::lock_guard lock(nccl_.mutex_);
    EXPECT_FALSE(aborted_) << "twice, of rank " << rank_;
    ExpectNoGraphs();
    aborted_ = clique_->broken = true;
    nccl_.registered -= static_cast<int>(registered_.size());
    registered_.clear();
    ++nccl_.aborted;
    for (const auto& [number, captured] : clique_->captured) {
      for (const auto& round : captured->rounds) nccl_.gpu_.Open(*round.done[static_cast<size_t>(rank_)]);
    }
  }

 private:
  // What this rank's launch was captured with; null: it was not captured.
  std::shared_ptr<FakeNccl::Captured> LaunchLocked(FakeNccl::Launch launch) {
    const auto rank = static_cast<size_t>(rank_);
    std::shared_ptr<FakeNccl::Captured> captured;
    if (launch.captured) {
      auto& of_all = clique_->captured[launched_];
      if (of_all == nullptr) of_all = std::make_shared<FakeNccl::Captured>(launched_);
      captured = of_all;
    }
    auto& launches = clique_->launches[launched_];
    launches.resize(clique_->comms.size());
    launches[rank] = std::move(launch);
    if (++clique_->launched[launched_] == static_cast<int>(launches.size())) {
      const auto captures = std::ranges::count(launches, true, &FakeNccl::Launch::captured);
      EXPECT_TRUE(captures == 0 || captures == std::ssize(launches)) << "some ranks captured a launch, others did not";
      nccl_.ExpectSameMemory(*clique_, launches);
      if (captures == 0) nccl_.Execute(launches);
      if (captured != nullptr) {
        captured->rounds_of.resize(launches.size());
        captured->launches = std::move(launches);
      }
      clique_->launches.erase(launched_);
      ++clique_->done;
    }
    ++launched_;
    return captured;
  }

  void ExpectNoGraphs() const {
    EXPECT_TRUE(std::ranges::all_of(held_, [](const auto& held) { return held.expired(); }))
        << "a graph holds calls of rank " << rank_ << "'s communicator, which ends";
  }

  FakeNccl& nccl_;
  const std::shared_ptr<FakeNccl::Clique> clique_;
  const int rank_;
  bool connected_ = false, finalized_ = false, aborted_ = false;
  int64_t launched_ = 0;
  std::vector<std::weak_ptr<int>> held_;       // by graphs
  std::map<const void*, int64_t> registered_;  // bytes by begin
};

FakeNccl::~FakeNccl() {
  for (const device::Gpu::Stream stream : streams_) gpu_.DestroyStream(stream);
}

size_t FakeNccl::pieces() const {
  std::lock_guard lock(mutex_);
  return pieces_.size();
}

absl::StatusOr<void*> FakeNccl::Allocate(int /*gpu*/, int64_t bytes) {
  if (allocations_left-- <= 0) return absl::InternalError("out of memory");
  ASSIGN_OR_RETURN(void* const memory, gpu_.Allocate(bytes));
  std::lock_guard lock(mutex_);
  pieces_[memory] = bytes;
  return memory;
}

void FakeNccl::Free(int /*gpu*/, void* memory) {
  {
    std::lock_guard lock(mutex_);
    EXPECT_EQ(pieces_.erase(memory), 1u);
    for (const auto& [id, clique] : cliques_) {
      for (const FakeComm* const comm : clique->comms) {
        EXPECT_TRUE(comm == nullptr || !comm->HasRegistered(memory)) << "memory is freed that is registered";
      }
    }
  }
  gpu_.Free(memory);
}

// Of a rank's segments of a whole the places differ by nature.
void FakeNccl::ExpectSameMemory(const Clique& clique, const std::vector<Launch>& launches) const {
  std::vector<bool> any(launches.size()), all(launches.size(), true);
  std::vector<std::vector<std::pair<int64_t, int64_t>>> places(launches.size());
  for (size_t r = 0; r < launches.size(); ++r) {
    for (const Transfer& transfer : launches[r].group) {
      for (const void* const data : {transfer.in, static_cast<const void*>(transfer.out)}) {
        if (data == nullptr) continue;
        const auto place = clique.comms[r]->PlaceOf(data);
        any[r] = any[r] || place.first > 0;
        all[r] = all[r] && place.first > 0;
        if (transfer.kind == Kind::kAllReduce) places[r].push_back(place);
      }
    }
    EXPECT_EQ(any[r], any[0]) << "some ranks give registered memory, others do not";
    EXPECT_TRUE(!any[r] || all[r]) << "rank " << r << " gives registered memory and other";
    EXPECT_EQ(places[r], places[0]);
  }
}

void FakeNccl::Break(int rank, absl::Status status) {
  std::lock_guard lock(mutex_);
  broken_[rank] = std::move(status);
}

absl::StatusOr<UniqueId> FakeNccl::MakeId() {
  if (refuses_ids) return absl::UnavailableError("no network to be found");
  std::lock_guard lock(mutex_);
  UniqueId id = {};
  ++ids_;
  std::memcpy(id.data(), &ids_, sizeof ids_);
  return id;
}

absl::StatusOr<std::unique_ptr<Comm>> FakeNccl::Init(const UniqueId& id, int rank, int size, int /*gpu*/) {
  std::lock_guard lock(mutex_);
  auto& clique = cliques_[id];
  if (clique == nullptr) clique = std::make_shared<Clique>(size);
  EXPECT_NE(id, UniqueId{});
  EXPECT_EQ(static_cast<int>(clique->comms.size()), size);
  auto comm = std::make_unique<FakeComm>(*this, clique, rank);
  clique->comms[static_cast<size_t>(rank)] = comm.get();
  ++made;
  return comm;
}

// Each rank does what the others do, in the same order.
void FakeNccl::NoteOrder(Clique& clique, int rank, int64_t what) {
  auto& mine = clique.orders[static_cast<size_t>(rank)];
  mine.push_back(what);
  for (const auto& other : clique.orders) {
    const bool there = other.size() >= mine.size();
    EXPECT_TRUE(!there || other[mine.size() - 1] == what) << "rank " << rank << "'s launch " << mine.size();
  }
}

absl::Status FakeNccl::Replay(Clique& clique, Captured& captured, int rank, device::Gpu::Stream stream) {
  std::lock_guard lock(mutex_);
  ++replays;
  NoteOrder(clique, rank, -1 - captured.number);
  const size_t size = captured.launches.size();
  const auto number = static_cast<size_t>(captured.rounds_of[static_cast<size_t>(rank)]++);
  while (captured.rounds.size() <= number) {
    auto& round = captured.rounds.emplace_back();
    for (size_t r = 0; r < size; ++r) {
      round.arrived.push_back(std::make_shared<Gate>());
      round.done.push_back(std::make_shared<Gate>());
    }
  }
  auto& round = captured.rounds[number];
  RETURN_IF_ERROR(gpu_.QueueOpen(round.arrived[static_cast<size_t>(rank)], stream));
  RETURN_IF_ERROR(gpu_.QueueWait(round.done[static_cast<size_t>(rank)], stream));
  if (++round.count < static_cast<int>(size) || clique.broken) return absl::OkStatus();
  const device::Gpu::Stream own = *gpu_.CreateStream();
  streams_.push_back(own);
  for (const auto& arrived : round.arrived) RETURN_IF_ERROR(gpu_.QueueWait(arrived, own));
  Do(captured.launches, own);
  for (const auto& done : round.done) RETURN_IF_ERROR(gpu_.QueueOpen(done, own));
  return absl::OkStatus();
}

// Behind what every rank has queued, on a stream of its own, which every rank's then waits for.
void FakeNccl::Execute(const std::vector<Launch>& launches) {
  const device::Gpu::Stream stream = *gpu_.CreateStream();
  const device::Gpu::Event event = *gpu_.CreateEvent();
  for (const auto& launch : launches) {
    ASSERT_TRUE(gpu_.Record(event, launch.stream).ok());
    ASSERT_TRUE(gpu_.Wait(stream, event).ok());
  }
  Do(launches, stream);
  ASSERT_TRUE(gpu_.Record(event, stream).ok());
  for (const auto& launch : launches) ASSERT_TRUE(gpu_.Wait(launch.stream, event).ok());
  gpu_.DestroyEvent(event);
  streams_.push_back(stream);
}

// Collectives match by their order, messages between two ranks likewise.
void FakeNccl::Do(const std::vector<Launch>& launches, device::Gpu::Stream stream) {
  std::vector<std::vector<const Transfer*>> collectives;
  for (const auto& launch : launches) {
    size_t number = 0;
    for (const Transfer& transfer : launch.group) {
      if (transfer.kind == Kind::kSend || transfer.kind == Kind::kReceive) continue;
      if (collectives.size() <= number) collectives.emplace_back();
      collectives[number++].push_back(&transfer);
    }
  }
  for (const auto& transfers : collectives) {
    ASSERT_EQ(transfers.size(), launches.size());
    DoOne(transfers, stream);
  }
  Match(launches, stream);
}

void FakeNccl::Copy(void* to, const void* from, int64_t bytes, device::Gpu::Stream stream) {
  if (to == from) return;
  ASSERT_TRUE(gpu_.Copy(to, from, bytes, stream).ok());
}

void FakeNccl::DoOne(const std::vector<const Transfer*>& transfers, device::Gpu::Stream stream) {
  const Transfer& first = *transfers[0];
  for (const Transfer* const transfer : transfers) {
    EXPECT_TRUE(transfer->kind == first.kind && transfer->count == first.count && transfer->dtype == first.dtype &&
                transfer->combination == first.combination && transfer->root == first.root);
    EXPECT_GT(transfer->count, 0);
  }
  const int64_t bytes = first.count * DTypeSize(first.dtype);
  if (first.kind == Kind::kBroadcast) {
    for (const Transfer* const to : transfers)
      Copy(to->out, transfers[static_cast<size_t>(first.root)]->in, bytes, stream);
    return;
  }
  if (first.kind != Kind::kAllGather) return Reduce(transfers, stream);
  for (size_t from = 0; from < transfers.size(); ++from) {
    for (const Transfer* const to : transfers) {
      Copy(static_cast<char*>(to->out) + static_cast<int64_t>(from) * bytes, transfers[from]->in, bytes, stream);
    }
  }
}

void FakeNccl::Reduce(const std::vector<const Transfer*>& transfers, device::Gpu::Stream stream) {
  const Transfer& first = *transfers[0];
  EXPECT_TRUE(first.dtype != DType::kI16 && first.dtype != DType::kU16 && first.dtype != DType::kBool);
  const auto [op, scale] = first.combination;
  EXPECT_TRUE(scale == 1.0 || op == ReduceOp::kSum);
  device::Reduction reduction{.dtype = first.dtype, .op = op, .scale_source = scale};
  // As NCCL has scales: in the dtype.
  if (first.dtype == DType::kF16) reduction.scale_source = static_cast<float>(Float16(static_cast<float>(scale)));
  if (first.dtype == DType::kBF16) reduction.scale_source = static_cast<float>(BFloat16(static_cast<float>(scale)));
  if (op == ReduceOp::kAverage)
    reduction = device::MakeReduction(first.dtype, op, 1, 1, static_cast<int>(transfers.size()));
  const int64_t bytes = first.count * DTypeSize(first.dtype);
  const auto of_segment = [&](size_t segment, const std::vector<void*>& outs) {
    std::vector<const void*> ins;
    for (const Transfer* const from : transfers) {
      ins.push_back(static_cast<const char*>(from->in) + static_cast<int64_t>(segment) * bytes);
    }
    ASSERT_TRUE(gpu_.Reduce(reduction, ins, outs, first.count, stream).ok());
  };
  if (first.kind == Kind::kReduceScatter) {
    for (size_t r = 0; r < transfers.size(); ++r) of_segment(r, {transfers[r]->out});
    return;
  }
  std::vector<void*> outs;
  for (size_t r = 0; r < transfers.size(); ++r) {
    if (first.kind == Kind::kAllReduce || static_cast<int>(r) == first.root) outs.push_back(transfers[r]->out);
  }
  of_segment(0, outs);
}

void FakeNccl::Match(const std::vector<Launch>& launches, device::Gpu::Stream stream) {
  const auto messages = [&](size_t rank, Kind kind, size_t other) {
    std::vector<const Transfer*> found;
    for (const Transfer& transfer : launches[rank].group) {
      if (transfer.kind == kind && transfer.root == static_cast<int>(other)) found.push_back(&transfer);
    }
    return found;
  };
  for (size_t from = 0; from < launches.size(); ++from) {
    for (size_t to = 0; to < launches.size(); ++to) {
      const auto sent = messages(from, Kind::kSend, to), received = messages(to, Kind::kReceive, from);
      ASSERT_EQ(sent.size(), received.size());
      for (size_t i = 0; i < sent.size(); ++i) {
        ASSERT_EQ(sent[i]->count, received[i]->count);
        Copy(received[i]->out, sent[i]->in, sent[i]->count, stream);
      }
    }
  }
}

}  // namespace gyre
