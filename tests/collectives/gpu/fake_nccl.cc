#include "collectives/gpu/fake_nccl.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <iterator>
#include <thread>
#include <utility>

#include "gtest/gtest.h"
#include "gyre/status_macros.h"

namespace gyre {

using internal::nccl::Comm;
using internal::nccl::Transfer;
using internal::nccl::UniqueId;
using Kind = Transfer::Kind;

namespace {

// Looks until it is so, 10 s at most.
bool Becomes(const std::function<bool()>& look) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (!look()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  return true;
}

}  // namespace

class FakeComm final : public Comm {
 public:
  FakeComm(FakeNccl& nccl, std::shared_ptr<FakeNccl::Clique> clique, int rank)
      : nccl_(nccl), clique_(std::move(clique)), rank_(rank) {
    ++nccl_.alive;
  }

  ~FakeComm() override {
    std::lock_guard lock(nccl_.mutex_);
    ExpectNoGraphs();
    nccl_.registered -= static_cast<int>(registered_.size());
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
    std::unique_lock lock(nccl_.mutex_);
    EXPECT_TRUE(connected_ && !aborted_ && !finalized_ && clique_->done >= launched_) << "of rank " << rank_;
    ExpectNoGraphs();
    EXPECT_TRUE(nccl_.Passed(uses_[handle])) << "which the GPU may use, of rank " << rank_;
    deregistering_ = true;
    while (nccl_.never_deregisters && !aborted_ && !nccl_.ending_) nccl_.Pause(lock);
    deregistering_ = false;
    if (aborted_) return absl::InternalError("aborted");
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

  // What is registered is used by the group until the GPU has come to `end`.
  void NoteUse(const std::vector<Transfer>& group, const std::shared_ptr<FakeNccl::Gate>& end) {
    for (const Transfer& transfer : group) {
      for (const void* const data : {transfer.in, static_cast<const void*>(transfer.out)}) {
        if (PlaceOf(data).first > 0) uses_[std::prev(registered_.upper_bound(data))->first] = end;
      }
    }
  }

  absl::StatusOr<bool> Poll() override {
    std::lock_guard lock(nccl_.mutex_);
    EXPECT_FALSE(aborted_ || deregistering_) << "of rank " << rank_;
    if (const auto broken = nccl_.broken_.find(rank_); broken != nccl_.broken_.end()) {
      capturing_ = false;
      return broken->second;
    }
    if (finalized_) return std::ranges::count(clique_->ended, false) == 0;
    if (!connected_) {
      connected_ = !nccl_.never_connects && std::ranges::count(clique_->comms, nullptr) == 0;
      return connected_;
    }
    if (nccl_.never_launches || clique_->done < launched_) return false;
    EXPECT_TRUE(!capturing_ || !held_.back().expired()) << "a graph is gone that NCCL adds to, of rank " << rank_;
    capturing_ = capturing_ && ++looks_ <= nccl_.looks_at_captures;
    return !capturing_;
  }

  // What is captured is told to the graph without the lock, which launches of graphs take.
  absl::StatusOr<bool> Launch(std::span<const Transfer> group, void* stream) override {
    const auto graph = nccl_.gpu_.CapturedInto(stream);
    std::shared_ptr<FakeNccl::Captured> captured;
    {
      std::lock_guard lock(nccl_.mutex_);
      EXPECT_TRUE(connected_ && !aborted_ && !finalized_ && clique_->done >= launched_) << "of rank " << rank_;
      EXPECT_FALSE(deregistering_ || capturing_) << "of rank " << rank_;
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
    capturing_ = true;
    looks_ = 0;
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
    std::unique_lock lock(nccl_.mutex_);
    EXPECT_FALSE(aborted_) << "twice, of rank " << rank_;
    EXPECT_TRUE(!capturing_ || nccl_.never_launches || clique_->done < launched_) << "amid a capture that goes on";
    ExpectNoGraphs();
    aborted_ = clique_->broken = true;
    nccl_.registered -= static_cast<int>(registered_.size());
    registered_.clear();
    ++nccl_.aborting;
    ++nccl_.aborted;
    for (const auto& [number, captured] : clique_->captured) {
      for (const auto& round : captured->rounds) nccl_.gpu_.Open(*round.done[static_cast<size_t>(rank_)]);
    }
    while (!nccl_.Passed(clique_->replays_end[static_cast<size_t>(rank_)]) && !nccl_.ending_) nccl_.Pause(lock);
    --nccl_.aborting;
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
      if (captures == 0) nccl_.Execute(*clique_, launches);
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
  bool connected_ = false, finalized_ = false, aborted_ = false, deregistering_ = false;
  bool capturing_ = false;  // as NCCL's thread sees it
  int looks_ = 0;           // at that
  int64_t launched_ = 0;
  std::vector<std::weak_ptr<int>> held_;                         // by graphs
  std::map<const void*, int64_t> registered_;                    // bytes by begin
  std::map<const void*, std::shared_ptr<FakeNccl::Gate>> uses_;  // by that, the end of the latest
};

FakeNccl::~FakeNccl() {
  ending_ = true;
  EXPECT_TRUE(Becomes([this] {
    std::lock_guard lock(mutex_);
    return alive == 0;
  }));
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
  // What an abort breaks off is done here all the same, sooner or later.
  if (aborted > 0) {
    gpu_.Free(memory);
  } else {
    gpu_.FreeAtOnce(memory);
  }
}

bool FakeNccl::AbortsBecome(int count) const {
  return Becomes([&] { return aborted == count; });
}

bool FakeNccl::AliveBecome(int count) const {
  return Becomes([&] { return alive == count; });
}

bool FakeNccl::Passed(const std::shared_ptr<Gate>& gate) const {
  return gate == nullptr || gpu_.IsOpen(*gate);
}

void FakeNccl::Pause(std::unique_lock<std::mutex>& lock) {
  lock.unlock();
  std::this_thread::sleep_for(std::chrono::microseconds(100));
  gpu_.Look();
  lock.lock();
}

absl::Status FakeNccl::QueueEnd(const Clique& clique, int rank, const std::vector<Transfer>& group,
                                device::Gpu::Stream stream, std::shared_ptr<Gate> end) {
  FakeComm* const comm = clique.comms[static_cast<size_t>(rank)];
  if (comm != nullptr) comm->NoteUse(group, end);
  return gpu_.QueueOpen(std::move(end), stream);
}

// Of a rank's segments of a whole the places differ by nature.
void FakeNccl::ExpectSameMemory(const Clique& clique, const std::vector<Launch>& launches) const {
  std::vector<bool> any(launches.size()), all(launches.size(), true);
  std::vector<std::vector<std::pair<int64_t, int64_t>>> places(launches.size());
  if (clique.broken) return;  // what ranks had registered may be gone
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
  auto& end = clique.replays_end[static_cast<size_t>(rank)];
  end = std::make_shared<Gate>();
  RETURN_IF_ERROR(QueueEnd(clique, rank, captured.launches[static_cast<size_t>(rank)].group, stream, end));
  if (++round.count < static_cast<int>(size) || clique.broken) return absl::OkStatus();
  const device::Gpu::Stream own = *gpu_.CreateStream();
  streams_.push_back(own);
  for (const auto& arrived : round.arrived) RETURN_IF_ERROR(gpu_.QueueWait(arrived, own));
  Do(captured.launches, own);
  for (const auto& done : round.done) RETURN_IF_ERROR(gpu_.QueueOpen(done, own));
  return absl::OkStatus();
}

// Behind what every rank has queued, on a stream of its own, which every rank's then waits for.
void FakeNccl::Execute(Clique& clique, const std::vector<Launch>& launches) {
  const device::Gpu::Stream stream = *gpu_.CreateStream();
  const device::Gpu::Event event = *gpu_.CreateEvent();
  for (const auto& launch : launches) {
    ASSERT_TRUE(gpu_.Record(event, launch.stream).ok());
    ASSERT_TRUE(gpu_.Wait(stream, event).ok());
  }
  Do(launches, stream);
  ASSERT_TRUE(gpu_.Record(event, stream).ok());
  for (size_t r = 0; r < launches.size(); ++r) {
    ASSERT_TRUE(gpu_.Wait(launches[r].stream, event).ok());
    ASSERT_TRUE(
        QueueEnd(clique, static_cast<int>(r), launches[r].group, launches[r].stream, std::make_shared<Gate>()).ok());
  }
  gpu_.DestroyEvent(event);
  streams_.push_back(stream);
}

}  // namespace gyre
