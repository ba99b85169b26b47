// Every algorithm carried out by the executor over the simulated network: the right bytes, through streams that hold
// little; and how long that takes by the network's clock.
#include <memory>
#include <numeric>
#include <optional>

#include "absl/strings/str_cat.h"
#include "collectives/executor.h"
#include "collectives/pricing/price.h"
#include "collectives/schedule/algorithms.h"
#include "collectives/schedule/expand.h"
#include "gtest/gtest.h"
#include "support/status_matchers.h"
#include "transport/sim/network.h"

namespace gyre::internal {
namespace {

using support::IsOk;

constexpr std::chrono::seconds kLimit{1000};  // of the network's own time

// Different for every rank, block and element, and small enough to be added up.
int32_t InputAt(int rank, int block, size_t element) {
  return rank * 1'000'003 + block * 10'007 + static_cast<int32_t>(element % 9'973);
}

// One byte on its way: the `offset`-th that `receiver` reads from `sender`.
struct Damage {
  int sender;
  int receiver;
  size_t offset;
};

// What its rank reads is damaged in one byte, if that comes.
class DamagingStreams final : public Streams {
 public:
  DamagingStreams(std::unique_ptr<Streams> streams, const Damage& damage)
      : streams_(std::move(streams)), damage_(damage) {}

  absl::StatusOr<size_t> Write(int peer, std::span<const Bytes> pieces) override {
    return streams_->Write(peer, pieces);
  }
  absl::StatusOr<size_t> Read(int peer, MutableBytes into) override {
    const auto got = streams_->Read(peer, into);
    if (!got.ok() || peer != damage_.sender) return got;
    if (read_ <= damage_.offset && damage_.offset < read_ + *got) into[damage_.offset - read_] ^= std::byte{4};
    read_ += *got;
    return got;
  }
  void AddWaits(int, bool, bool, std::vector<pollfd>&) const override {}

  bool happened() const { return read_ > damage_.offset; }

 private:
  const std::unique_ptr<Streams> streams_;
  const Damage damage_;
  size_t read_ = 0;  // from the sender
};

// The data of all ranks, and their executors.
class World {
 public:
  // `counts`: the elements of each block. `checksums`: which ranks send them; none where it is empty.
  World(const std::vector<Schedule>& programs, const std::vector<size_t>& counts, const sim::NetworkOptions& options,
        const std::vector<bool>& checksums = {}, const std::optional<Damage>& damage = {})
      : network_(options) {
    const int ranks = static_cast<int>(programs.size());
    for (int rank = 0; rank < ranks; ++rank) {
      auto& blocks = data_.emplace_back();
      for (size_t block = 0; block < counts.size(); ++block) {
        auto& elements = blocks.emplace_back(counts[block]);
        for (size_t i = 0; i < elements.size(); ++i) elements[i] = InputAt(rank, static_cast<int>(block), i);
      }
    }
    for (int rank = 0; rank < ranks; ++rank) {
      streams_.push_back(network_.Open(rank, 1));
      if (damage && damage->receiver == rank) {
        auto damaging = std::make_unique<DamagingStreams>(std::move(streams_.back()), *damage);
        damaging_ = damaging.get();
        streams_.back() = std::move(damaging);
      }
      ExecutorPlan plan = PlanOf(rank, ranks, programs);
      plan.checksum = !checksums.empty() && checksums[static_cast<size_t>(rank)];
      executors_.push_back(std::make_unique<Executor>(*streams_.back(), std::move(plan)));
    }
  }

  // Until all are done, or nothing moves any more. Returns the network's time.
  absl::StatusOr<Duration> Run() {
    const TimePoint start = network_.now();
    for (bool all_done = false; !all_done;) {
      bool moved = false;
      all_done = true;
      for (const auto& executor : executors_) {
        const shm::Progress progress = executor->Poll();
        if (!executor->status().ok()) return executor->status();
        all_done = all_done && progress == shm::Progress::kDone;
        moved = moved || progress == shm::Progress::kSome;
      }
      if (!all_done && !moved && !network_.Advance(start + kLimit)) return absl::InternalError("all are stuck");
    }
    return network_.now() - start;
  }

  // Until nothing moves any more, whoever has failed. Returns how each rank's calls ended: nothing where it has not.
  std::vector<std::optional<absl::Status>> RunOut() {
    std::vector<std::optional<absl::Status>> ends(executors_.size());
    for (bool moved = true; moved || network_.Advance(network_.now() + kLimit);) {
      moved = false;
      for (size_t rank = 0; rank < ends.size(); ++rank) {
        if (ends[rank]) continue;
        const shm::Progress progress = executors_[rank]->Poll();
        moved = moved || progress != shm::Progress::kNone;
        if (progress == shm::Progress::kDone) ends[rank] = executors_[rank]->status();
      }
    }
    return ends;
  }

  bool damaged() const { return damaging_ != nullptr && damaging_->happened(); }

  const std::vector<int32_t>& block(int rank, int number) const {
    return data_[static_cast<size_t>(rank)][static_cast<size_t>(number)];
  }

 private:
  ExecutorPlan PlanOf(int rank, int ranks, const std::vector<Schedule>& programs) {
    ExecutorPlan plan{.schedule = programs[static_cast<size_t>(rank)],
                      .ranks = std::vector<int>(static_cast<size_t>(ranks)),
                      .names = {},
                      .self = rank,
                      .blocks = {},
                      .reduction = {.dtype = DType::kI32, .op = ReduceOp::kSum},
                      .channel = 1,
                      .call = 1,
                      .signature = {}};
    std::iota(plan.ranks.begin(), plan.ranks.end(), 0);
    for (int other = 0; other < ranks; ++other) plan.names.push_back(absl::StrCat("rank ", other));
    for (auto& elements : data_[static_cast<size_t>(rank)]) {
      plan.blocks.push_back(std::as_writable_bytes(std::span(elements)));
    }
    return plan;
  }

  sim::SimNetwork network_;
  std::vector<std::vector<std::vector<int32_t>>> data_;
  std::vector<std::unique_ptr<Streams>> streams_;
  const DamagingStreams* damaging_ = nullptr;
  std::vector<std::unique_ptr<Executor>> executors_;
};

class Execution : public testing::TestWithParam<Algorithm> {
 protected:
  // What the claim says of an element; nothing where it says nothing.
  static std::optional<int32_t> Expected(int ranks, int root, int rank, int block, size_t element) {
    const Claim claim = GetParam().claim;
    if (claim == AllGathered) return InputAt(block, block, element);
    if (claim == Broadcasted) return InputAt(root, block, element);
    if (claim == Exchanged) {
      const int from = block - ranks;
      return from >= 0 && from != rank ? InputAt(from, rank, element) : InputAt(rank, block, element);
    }
    const bool reduced =
        claim == AllReduced || (claim == Reduced && rank == root) || (claim == ReduceScattered && block == rank);
    if (!reduced) return std::nullopt;
    int32_t sum = 0;
    for (int other = 0; other < ranks; ++other) sum += InputAt(other, block, element);
    return sum;
  }

  // `counts` in turn for the blocks; where pieces change their numbers, the last of them for all.
  static void ExpectDone(int ranks, const std::vector<size_t>& counts, sim::NetworkOptions options,
                         const std::vector<bool>& checksums = {}) {
    const int root = ranks / 2;
    const std::vector<Schedule> programs = ProgramsOf(GetParam(), ranks, root);
    std::vector<size_t> sizes(static_cast<size_t>(programs[0].blocks), counts.back());
    for (size_t block = 0; GetParam().meeting == Meeting::kSameBlock && block < sizes.size(); ++block) {
      sizes[block] = counts[block % counts.size()];
    }
    options.ranks = ranks;
    World world(programs, sizes, options, checksums);
    ASSERT_THAT(world.Run(), IsOk()) << ranks << " ranks";
    for (int rank = 0; rank < ranks; ++rank) ExpectResult(world, programs[0].blocks, ranks, root, rank);
  }

  static void ExpectResult(const World& world, int blocks, int ranks, int root, int rank) {
    for (int block = 0; block < blocks; ++block) {
      const std::vector<int32_t>& elements = world.block(rank, block);
      for (size_t i = 0; i < elements.size(); ++i) {
        const auto expected = Expected(ranks, root, rank, block, i);
        if (!expected) continue;
        ASSERT_EQ(elements[i], *expected) << ranks << " ranks: " << rank << ", " << block << ", " << i;
      }
    }
  }

  // The damage, if that byte is ever sent, ends its receiver's part, and whoever ends well has the right result. True:
  // it was sent.
  static bool ExpectDamageStays(int ranks, const Damage& damage, const std::vector<bool>& checksums) {
    const int root = 0;
    const std::vector<Schedule> programs = ProgramsOf(GetParam(), ranks, root);
    const int blocks = programs[0].blocks;
    World world(programs, std::vector<size_t>(static_cast<size_t>(blocks), 18'000), {.ranks = ranks}, checksums,
                damage);
    const std::vector<std::optional<absl::Status>> ends = world.RunOut();
    for (int rank = 0; rank < ranks; ++rank) {
      const auto& end = ends[static_cast<size_t>(rank)];
      if (rank == damage.receiver && world.damaged()) {
        EXPECT_TRUE(end && absl::IsDataLoss(*end)) << (end ? end->ToString() : "did not end");
      } else if (end) {
        EXPECT_THAT(*end, IsOk());
        ExpectResult(world, blocks, ranks, root, rank);
      }
    }
    return world.damaged();
  }
};

TEST_P(Execution, OfUnevenBlocks) {
  for (const int ranks : {1, 2, 3, 4, 5, 7, 8, 13}) ExpectDone(ranks, {0, 1, 20'000, 17, 3'000}, {});
}

TEST_P(Execution, OfEmptyBlocks) {
  for (const int ranks : {2, 5, 8}) ExpectDone(ranks, {0}, {});
}

// Elements are torn apart, and a stream is full long before a block is sent.
TEST_P(Execution, ThroughStreamsThatHoldLittle) {
  for (const int ranks : {2, 3, 6, 9}) ExpectDone(ranks, {5, 700}, {.window = 333, .packet_bytes = 101});
}

TEST_P(Execution, WithChecksums) {
  const std::vector<size_t> counts = {0, 1, 20'000, 17, 3'000};
  for (const int ranks : {2, 3, 5, 8}) {
    ExpectDone(ranks, counts, {}, std::vector<bool>(static_cast<size_t>(ranks), true));
    ExpectDone(ranks, {0}, {}, std::vector<bool>(static_cast<size_t>(ranks), true));
    ExpectDone(ranks, {5, 700}, {.window = 333, .packet_bytes = 101},
               std::vector<bool>(static_cast<size_t>(ranks), true));
  }
}

// What one rank finds damaged, no other takes for whole, be it sent on while it arrived: in the header, the block's
// beginning, what is sent on at once, its end, the checksum, and the block after it.
TEST_P(Execution, DamageIsNobodysResult) {
  int happened = 0;
  for (const int ranks : {3, 4}) {
    if (ranks > 3 && !THOROUGH) break;
    for (int sender = 0; sender < ranks; ++sender) {
      for (const size_t offset : {7, 64, 30'000, 72'063, 72'064, 72'071, 100'000}) {
        for (int receiver = 0; receiver < ranks; ++receiver) {
          if (receiver == sender) continue;
          std::vector<bool> checksums(static_cast<size_t>(ranks), true);
          const Damage damage{sender, receiver, offset};
          happened += ExpectDamageStays(ranks, damage, checksums) ? 1 : 0;
          checksums[static_cast<size_t>(receiver)] = false;  // it sends on without one what came with one
          ExpectDamageStays(ranks, damage, checksums);
          if (testing::Test::HasFailure()) return;  // one tells enough
        }
      }
    }
  }
  EXPECT_GT(happened, 0);
}

INSTANTIATE_TEST_SUITE_P(Schedules, Execution, testing::ValuesIn(AllAlgorithms()),
                         [](const auto& info) { return info.param.name; });

// Over 10 Gbit/s and 20 us, what `bytes` on each rank take, every block cut into `segments`; microseconds.
double Microseconds(const std::string& name, int ranks, size_t bytes, int segments = 1, bool checksums = false) {
  std::vector<Schedule> programs;
  for (const Algorithm& algorithm : AllAlgorithms()) {
    if (algorithm.name == name) programs = ProgramsOf(algorithm, ranks, 0);
  }
  if (programs.empty()) {
    ADD_FAILURE() << "no algorithm " << name;
    return -1;
  }
  const int blocks = programs[0].blocks;
  std::vector<std::vector<int>> pieces(static_cast<size_t>(blocks));
  for (int piece = 0; piece < blocks * segments; ++piece) {
    pieces[static_cast<size_t>(piece / segments)].push_back(piece);
  }
  for (Schedule& schedule : programs) schedule = Expand(schedule, pieces, blocks * segments);
  const auto count = static_cast<size_t>(blocks * segments);
  World world(programs, std::vector<size_t>(count, bytes / sizeof(int32_t) / count),
              {.ranks = ranks, .link = {.latency = std::chrono::microseconds(20), .bytes_per_second = 1.25e9}},
              std::vector<bool>(static_cast<size_t>(ranks), checksums));
  const auto time = world.Run();
  EXPECT_THAT(time, IsOk());
  return time.ok() ? static_cast<double>(time->count()) / 1000 : -1;
}

constexpr size_t kLittle = 4 << 10, kSome = 256 << 10, kMuch = 4 << 20;

// The network's clock is the same under a sanitizer, but all that it carries takes a minute there.
class Time : public testing::Test {
 protected:
  void SetUp() override {
    if (!THOROUGH) GTEST_SKIP() << "a sanitizer changes nothing about simulated time";
  }
};

// What docs/algorithms.md says each is good for.
TEST_F(Time, OfAllReduces) {
  constexpr int kRanks = 13;
  const auto of = [](const char* name, size_t bytes) {
    return Microseconds(absl::StrCat(name, "AllReduce"), kRanks, bytes);
  };
  EXPECT_LT(of("RecursiveDoubling", kLittle), of("Circulant", kLittle));
  EXPECT_LT(of("Circulant", kLittle), of("HalvingDoubling", kLittle));
  EXPECT_LT(of("HalvingDoubling", kLittle), of("Ring", kLittle) / 2);
  for (const char* const other : {"RecursiveDoubling", "HalvingDoubling", "Ring", "DoubleTree"}) {
    EXPECT_LT(of("Circulant", kSome), of(other, kSome) * 0.8) << other;
  }
  EXPECT_LT(of("Ring", kMuch), of("Circulant", kMuch));
  EXPECT_LT(of("Circulant", kMuch), of("Ring", kMuch) * 1.1);
  for (const char* const other : {"RecursiveDoubling", "HalvingDoubling", "DoubleTree"}) {
    EXPECT_LT(of("Circulant", kMuch), of(other, kMuch) * 0.8) << other;
  }
}

TEST_F(Time, OfBroadcasts) {
  constexpr int kRanks = 32;
  const auto of = [](const char* name, size_t bytes) {
    return Microseconds(absl::StrCat(name, "Broadcast"), kRanks, bytes);
  };
  EXPECT_LE(of("Binomial", kLittle), of("DoubleTree", kLittle));
  EXPECT_LT(of("DoubleTree", kSome), of("Binomial", kSome) * 0.8);
  EXPECT_LT(of("DoubleTree", kSome), of("Chain", kSome) * 0.8);
  EXPECT_LT(of("DoubleTree", kMuch), of("Chain", kMuch) * 0.8);
  EXPECT_LT(of("Chain", kMuch), of("Binomial", kMuch) * 0.8);
}

// The price is what the executor takes by the network's clock: closely for blocks of one packet; roughly for long ones,
// of which the executor sends more before another has its turn. Of an alltoall nothing is said beyond little data: this
// network gives a receiver's port away when a packet is sent, not when it arrives.
TEST_F(Time, IsThePrice) {
  const sim::LinkModel link{.latency = std::chrono::microseconds(20), .bytes_per_second = 1.25e9};
  for (const Algorithm& algorithm : AllAlgorithms()) {
    for (const int ranks : {8, 13}) {
      for (const size_t bytes : {kLittle, kMuch}) {
        if (bytes == kMuch && algorithm.claim == Exchanged) continue;
        const std::vector<Schedule> programs = ProgramsOf(algorithm, ranks, 0);
        const auto blocks = static_cast<size_t>(programs[0].blocks);
        const size_t block_bytes = bytes / sizeof(int32_t) / blocks * sizeof(int32_t);
        const auto price = PriceOf(programs, std::vector(blocks, static_cast<int64_t>(block_bytes)), {.link = link});
        ASSERT_THAT(price, IsOk());
        EXPECT_NEAR(Microseconds(algorithm.name, ranks, bytes) / (price->seconds * 1e6), 1, bytes == kMuch ? 0.25 : 0.1)
            << algorithm.name << ", " << ranks << " ranks, " << bytes << " bytes";
      }
    }
  }
}

// A block is sent on while it arrives, in grains of 64 KiB: cut smaller than that it is sooner under way, and only
// then.
TEST_F(Time, OfSegments) {
  for (const char* const name : {"RingAllReduce", "ChainBroadcast", "DoubleTreeBroadcast"}) {
    const double whole = Microseconds(name, 8, kMuch);
    EXPECT_NEAR(Microseconds(name, 8, kMuch, 4), whole, whole / 50) << name;
    EXPECT_LT(Microseconds(name, 8, kSome, 4), Microseconds(name, 8, kSome) * 0.9) << name;
  }
}

// A block that is checked is sent on while it arrives too, but for its end.
TEST_F(Time, OfChecksums) {
  for (const char* const name : {"RingAllReduce", "ChainBroadcast", "DoubleTreeBroadcast"}) {
    EXPECT_LT(Microseconds(name, 8, kMuch, 1, true), Microseconds(name, 8, kMuch) * 1.05) << name;
  }
}

}  // namespace
}  // namespace gyre::internal
