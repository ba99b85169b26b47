#include "collectives/shm/grid.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "collectives/shm/allreduce.h"
#include "gtest/gtest.h"
#include "support/fill.h"
#include "support/ranks.h"
#include "support/status_matchers.h"
#include "transport/shm/mesh.h"

namespace gyre::internal {
namespace {

using support::IsOk;
using support::MatchesStatus;

// Every member has a place of its own, and meets those who meet it.
void ExpectGrid(const Rows& rows, int size) {
  std::set<std::pair<int, int>> places;
  for (int self = 0; self < size; ++self) {
    const Grid grid = MakeGrid(rows, self);
    ASSERT_TRUE(places.emplace(grid.row, grid.column).second) << self << " of " << size;
    ASSERT_EQ(grid.row_members[static_cast<size_t>(grid.column)], self);
    ASSERT_TRUE(std::ranges::count(grid.column_meeting, self) == 1);
    ASSERT_LE(static_cast<int>(grid.row_members.size()), grid.columns + 1);
    for (const int member : grid.column_meeting) {
      ASSERT_EQ(MakeGrid(rows, member).column_meeting, grid.column_meeting);
    }
    if (grid.extra()) {
      ASSERT_TRUE(grid.column_members.empty());
      continue;
    }
    ASSERT_EQ(static_cast<int>(grid.column_members.size()), grid.rows);
    ASSERT_EQ(grid.column_members[static_cast<size_t>(grid.row)], self);
  }
}

TEST(Grid, EveryMemberHasARowAndMeetsItsColumn) {
  for (int size = 1; size <= 300; ++size) {
    const Rows rows = RowsByNumber(size);
    ExpectGrid(rows, size);
    const Grid grid = MakeGrid(rows, 0);
    ASSERT_TRUE(size < 32 || grid.columns <= 3 * grid.rows) << size;
  }
  EXPECT_EQ(RowsByNumber(64).size(), 8u);
  EXPECT_EQ(RowsByNumber(32).size(), 4u);
  EXPECT_EQ(RowsByNumber(37).size(), 6u);
}

// A made-up machine's ranks: each in cache `cache(rank)` and NUMA node `node(rank)`; none for a negative number.
template <typename Cache, typename Node>
std::vector<Domain> Machine(int ranks, Cache cache, Node node) {
  const auto name = [](int number) { return number < 0 ? "" : absl::StrCat("the ", number, "th"); };
  std::vector<Domain> domains;
  for (int rank = 0; rank < ranks; ++rank) domains.push_back({name(cache(rank)), name(node(rank))});
  return domains;
}

constexpr auto kUnknown = [](int) { return -1; };

TEST(RowsByDomain, AreTheRanksOfOneNodeOrCache) {
  const auto filled = RowsByDomain(Machine(32, kUnknown, [](int rank) { return rank / 16; }));
  ASSERT_EQ(filled.size(), 2u);
  EXPECT_EQ(filled[0].size(), 16u);
  EXPECT_EQ(filled[1].front(), 16);
  ExpectGrid(filled, 32);
  const auto in_turn = RowsByDomain(Machine(32, kUnknown, [](int rank) { return rank % 2; }));
  ASSERT_EQ(in_turn.size(), 2u);
  EXPECT_EQ(in_turn[1][2], 5);
  ExpectGrid(in_turn, 32);
  // Four caches of one node.
  const auto caches = RowsByDomain(Machine(
      32, [](int rank) { return rank / 8; }, [](int) { return 0; }));
  ASSERT_EQ(caches.size(), 4u);
  EXPECT_EQ(caches[3].front(), 24);
  ExpectGrid(caches, 32);
}

TEST(RowsByDomain, AreOfTheLevelThatMakesTheSquarerGrid) {
  // 2 nodes of 8 caches of 8 ranks: 16 x 8 rather than 2 x 64.
  const auto eight = [](int rank) { return rank / 8; };
  EXPECT_EQ(RowsByDomain(Machine(128, eight, [](int rank) { return rank / 64; })).size(), 16u);
  // 4 nodes of 8 caches of 2 ranks: 4 x 16 rather than 32 x 2.
  const auto two = [](int rank) { return rank / 2; };
  EXPECT_EQ(RowsByDomain(Machine(64, two, [](int rank) { return rank / 16; })).size(), 4u);
  // A cache is nearer than a node that has as many ranks.
  const auto odd_even = [](int rank) { return rank % 4; };
  const auto rows = RowsByDomain(Machine(32, odd_even, [](int rank) { return rank / 8; }));
  ASSERT_EQ(rows.size(), 4u);
  EXPECT_EQ(rows[0][1], 4);
}

TEST(RowsByDomain, MayDifferByOneMember) {
  const auto rows = RowsByDomain(Machine(33, kUnknown, [](int rank) { return rank % 2; }));
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].size(), 17u);
  EXPECT_TRUE(MakeGrid(rows, 32).extra());
  ExpectGrid(rows, 33);
}

// Then rows are by number.
TEST(RowsByDomain, AreNoneWhereMembersAreUnevenOrNotKnown) {
  const auto uneven = [](int rank) { return rank < 20 ? 0 : 1; };
  EXPECT_TRUE(RowsByDomain(Machine(32, uneven, uneven)).empty());
  EXPECT_TRUE(RowsByDomain(Machine(32, kUnknown, kUnknown)).empty());
  EXPECT_TRUE(RowsByDomain(Machine(32, kUnknown, [](int) { return 0; })).empty());  // one node
  EXPECT_TRUE(RowsByDomain(Machine(
                               32, [](int rank) { return rank; }, kUnknown))
                  .empty());                                                                    // caches of their own
  EXPECT_TRUE(RowsByDomain(Machine(32, kUnknown, [](int rank) { return rank - 1; })).empty());  // one is not known
  EXPECT_TRUE(RowsByDomain({}).empty());
  const auto even = [](int rank) { return rank / 16; };
  EXPECT_EQ(RowsByDomain(Machine(32, uneven, even)).size(), 2u);  // of nodes, then
}

// A host's ranks in one thread, which polls their operations in any order it likes.
class Host {
 public:
  // `nodes`: the ranks are on so many NUMA nodes in turn; 0: nobody knows.
  explicit Host(int size, int nodes = 0) : size_(size) {
    if (nodes > 0) domains_ = Machine(size, kUnknown, [nodes](int rank) { return rank % nodes; });
    constexpr char kSecret[] = "a secret of more than sixteen bytes";
    std::vector<std::unique_ptr<shm::Mesh>> meshes;
    std::vector<shm::Mesh::Address> addresses;
    for (int r = 0; r < size; ++r) {
      meshes.push_back(*shm::Mesh::Listen({.job_id = "grid", .epoch = 1, .rank = r, .role = Role::kRank}, kSecret, ""));
      addresses.push_back({r, meshes.back()->address()});
    }
    groups_.resize(static_cast<size_t>(size));
    support::RunThreads(size, [&](const support::Rank& rank) {
      auto own = *shm::OwnMemory::Create(rank, int64_t{256} << 20);
      auto peers = addresses;
      peers.erase(peers.begin() + rank.rank);
      auto links = *meshes[static_cast<size_t>(rank.rank)]->Connect(
          peers, own, std::chrono::steady_clock::now() + std::chrono::seconds(20));
      auto node = *shm::Node::Create({.rank = rank, .job_size = size}, std::move(own), std::move(links),
                                     MakeLogger(LogLevel::kOff, "test"));
      const GroupLayout layout{.size = size, .grid_size = 4, .placed_grid_size = 4};
      const int64_t region = *node->ReserveRegion(layout.bytes());
      std::vector<int> ranks(static_cast<size_t>(size));
      std::iota(ranks.begin(), ranks.end(), 0);
      groups_[static_cast<size_t>(rank.rank)] =
          *Group::Create(node, ranks, std::vector<int64_t>(ranks.size(), region), layout, {}, domains_);
    });
  }

  int size() const { return size_; }
  Group& group(int rank) const { return *groups_[static_cast<size_t>(rank)]; }
  std::byte* Allocate(int rank, int64_t bytes) const { return *group(rank).node().arena()->Allocate(bytes); }

 private:
  const int size_;
  std::vector<Domain> domains_;
  std::vector<std::shared_ptr<Group>> groups_;
};

// One allreduce of all of a host's ranks: their buffers and operations.
class Together {
 public:
  Together(const Host& host, DType dtype, int64_t count, ReduceOp op, uint64_t seed, bool in_place)
      : host_(host), dtype_(dtype), count_(count), op_(op), seed_(seed) {
    for (int r = 0; r < host.size(); ++r) {
      in_.emplace_back(host.Allocate(r, count * DTypeSize(dtype)), count, dtype);
      out_.push_back(in_place ? in_.back() : TensorView(host.Allocate(r, count * DTypeSize(dtype)), count, dtype));
      exact_ = seed % 4 != 0;
      exact_ ? support::FillExact(in_.back(), seed, r) : support::FillUniform(in_.back(), seed, r);
    }
    operations_.resize(in_.size());
  }
  ~Together() {
    for (int r = 0; r < host_.size(); ++r) {
      const auto index = static_cast<size_t>(r);
      host_.group(r).node().arena()->Free(static_cast<std::byte*>(in_[index].data));
      if (out_[index].data != in_[index].data) {
        host_.group(r).node().arena()->Free(static_cast<std::byte*>(out_[index].data));
      }
    }
  }
  Together(const Together&) = delete;
  Together& operator=(const Together&) = delete;

  // A rank begins when it is first asked for.
  AllReduce& operation(int rank) {
    auto& operation = operations_[static_cast<size_t>(rank)];
    if (operation == nullptr) {
      const auto index = static_cast<size_t>(rank);
      const Call call{.kind = CallKind::kAllReduce,
                      .in = in_[index],
                      .out = out_[index],
                      .op = op_,
                      .timeout = std::chrono::milliseconds(300)};
      operation = std::make_unique<AllReduce>(host_.group(rank), call, SignatureOf(call));
    }
    return *operation;
  }

  void ExpectSameBits() const {
    for (const TensorView& out : out_) {
      ASSERT_EQ(std::memcmp(out.data, out_[0].data, static_cast<size_t>(out.bytes())), 0);
    }
  }

  void ExpectResult(int rank) const {
    if (!exact_) return;
    const double divisor = op_ == ReduceOp::kAverage ? host_.size() : 1;
    for (int64_t i = 0; i < count_; i += 1 + count_ / 5000) {
      double expected = 0;
      for (int r = 0; r < host_.size(); ++r) expected += support::ExactValue(dtype_, seed_, r, i);
      if (op_ == ReduceOp::kAverage && dtype_ == DType::kI32)
        expected = static_cast<int>(expected) / host_.size();
      else
        expected = expected * (1 / divisor);
      ASSERT_NEAR(support::ReadElement(out_[static_cast<size_t>(rank)], i), expected,
                  dtype_ == DType::kF16 ? 1e-3 : 1e-6)
          << "rank " << rank << " of " << host_.size() << ", element " << i << " of " << count_;
    }
  }

 private:
  const Host& host_;
  const DType dtype_;
  const int64_t count_;
  const ReduceOp op_;
  const uint64_t seed_;
  bool exact_ = true;  // the order of sums does not matter
  std::vector<TensorView> in_, out_;
  std::vector<std::unique_ptr<AllReduce>> operations_;
};

struct Shape {
  int size;
  int nodes;
};

class GridAllReduce : public testing::TestWithParam<Shape> {};

// Ranks run ahead of each other as far as they can, over several calls, in orders chosen at random.
TEST_P(GridAllReduce, IsRightInEveryOrder) {
  const auto [size, nodes] = GetParam();
  const Host host(size, nodes);
  ASSERT_EQ(host.group(0).grid()->row_members[1], nodes > 0 ? nodes : 1);
  std::mt19937_64 random(static_cast<uint64_t>(size + 100 * nodes));
  const std::vector<int64_t> counts = {16 << 10, (16 << 10) + 1, 40'000, 129, 30'001};  // one of them too short for it
  std::vector<std::unique_ptr<Together>> calls;
  for (int call = 0; call < 24; ++call) {
    const std::vector<DType> dtypes = {DType::kF32, DType::kI32, DType::kF64, DType::kF16};
    calls.push_back(std::make_unique<Together>(host, dtypes[random() % dtypes.size()], counts[random() % counts.size()],
                                               random() % 3 == 0 ? ReduceOp::kAverage : ReduceOp::kSum, random(),
                                               random() % 2 == 0));
  }
  std::vector<size_t> at(static_cast<size_t>(host.size()));
  while (std::ranges::any_of(at, [&](size_t call) { return call < calls.size(); })) {
    const auto rank = static_cast<int>(random() % at.size());
    for (uint64_t looks = random() % 8 * (random() % 8); looks > 0; --looks) {  // some ranks get far ahead
      size_t& call = at[static_cast<size_t>(rank)];
      if (call == calls.size()) break;
      AllReduce& operation = calls[call]->operation(rank);
      if (operation.Poll() != shm::Progress::kDone) continue;
      ASSERT_THAT(operation.status(), IsOk());
      calls[call]->ExpectResult(rank);
      ++call;
    }
  }
  for (const auto& call : calls) call->ExpectSameBits();
}

INSTANTIATE_TEST_SUITE_P(Sizes, GridAllReduce,
                         testing::Values(Shape{4, 0}, Shape{5, 0}, Shape{7, 0}, Shape{11, 0}, Shape{12, 0}, Shape{9, 2},
                                         Shape{12, 3}));

// Who waits for one that waits for the missing one does not name it.
TEST(GridAllReduceFailures, NameWhoHoldsAllUp) {
  const Host host(9);
  Together call(host, DType::kF32, 20'000, ReduceOp::kSum, 3, false);
  for (int r = 0; r < host.size(); ++r)
    EXPECT_EQ(call.operation(r).Poll(), r == 8 ? shm::Progress::kSome : shm::Progress::kNone);
  const TimePoint start = std::chrono::steady_clock::now();
  for (int r = 0; r < host.size(); ++r) call.operation(r).StartClock(start);
  // Rank 4 has come to the second meeting, and never comes to the third.
  EXPECT_EQ(call.operation(4).Poll(), shm::Progress::kSome);
  for (int look = 0; look < 10; ++look) {
    for (int r = 0; r < host.size(); ++r) {
      if (r == 4) continue;
      EXPECT_NE(call.operation(r).Poll(), shm::Progress::kDone);
    }
  }
  EXPECT_FALSE(call.operation(0).Check(start + std::chrono::milliseconds(200)));
  ASSERT_TRUE(call.operation(0).Check(start + std::chrono::milliseconds(400)));
  EXPECT_THAT(call.operation(0).status(), MatchesStatus(absl::StatusCode::kDeadlineExceeded, ": rank 4 did not come"));
  ASSERT_TRUE(call.operation(5).Check(start));
  EXPECT_THAT(call.operation(5).status(), MatchesStatus(absl::StatusCode::kAborted, ": rank 4 did not come"));
}

// A row that is through has nothing to do with one that is still at work.
TEST(GridAllReduceFailures, ARankMayLeaveWhileAnotherRowIsAtWork) {
  const Host host(4);
  Together call(host, DType::kF32, 6 << 20, ReduceOp::kSum, 5, true);
  std::vector<bool> done(4);
  const auto poll = [&](int rank) {
    if (!done[static_cast<size_t>(rank)]) {
      done[static_cast<size_t>(rank)] = call.operation(rank).Poll() == shm::Progress::kDone;
    }
  };
  // Ranks 2 and 3 are one row; rank 0 comes to the last of its pieces of work, and stops after the first of them.
  const auto posted = [&](int rank) { return host.group(rank).collective().meeting.round(); };
  while (posted(0) < 3) {
    for (int r = 0; r < 4; ++r) poll(r);
  }
  while (!done[2] || !done[3]) {
    poll(2);
    poll(3);
    if (posted(1) < 3 || posted(2) < 3 || posted(3) < 3) poll(1);
  }
  ASSERT_EQ(call.operation(0).Poll(), shm::Progress::kSome);
  host.group(3).node().Close();
  while (host.group(0).node().losses() == 0) std::this_thread::yield();
  const TimePoint now = std::chrono::steady_clock::now();
  call.operation(0).StartClock(now);
  EXPECT_FALSE(call.operation(0).Check(now)) << call.operation(0).status();
  while (!done[0] || !done[1]) {
    poll(0);
    poll(1);
  }
  for (const int rank : {0, 1, 2}) {
    EXPECT_THAT(call.operation(rank).status(), IsOk());
    call.ExpectResult(rank);
  }
}

}  // namespace
}  // namespace gyre::internal
