// What calls teach about the network: on a simulated one, which is not what the ranks were told it is.
#include <chrono>
#include <cmath>
#include <cstdint>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "collectives/hierarchical/rail.h"
#include "collectives/hierarchical/sim_world.h"
#include "collectives/selection/refiner.h"
#include "gtest/gtest.h"
#include "support/status_matchers.h"

namespace gyre {
namespace {

using internal::Call;
using internal::CallKind;
using internal::Collective;
using internal::PathModel;
using internal::Refiner;
using internal::Selector;

sim::NetworkOptions Network() {
  return {.ranks = 5};
}

PathModel TrueModel() {
  return {.latency = std::chrono::duration<double>(Network().link.latency).count(),
          .bytes_per_second = Network().link.bytes_per_second};
}

// Small and large calls in turn; after each all ranks take the network for the same.
void RunCalls(SimWorld& world, int calls, int first = 0) {
  for (int number = first; number < first + calls; ++number) {
    const size_t count = number % 2 == 0 ? 100 : 1 << 19;
    std::vector<std::vector<float>> data(static_cast<size_t>(world.size()), std::vector<float>(count, 1));
    std::vector<std::shared_ptr<internal::HierarchicalOperation>> operations;
    for (int rank = 0; rank < world.size(); ++rank) {
      auto& own = data[static_cast<size_t>(rank)];
      operations.push_back(world.Make(rank, {.kind = CallKind::kAllReduce, .in = own, .out = own}));
    }
    ASSERT_TRUE(world.Run(operations, std::chrono::seconds(100)));
    const PathModel& first = world.team(0)->refiner().selector().model();
    for (int rank = 0; rank < world.size(); ++rank) {
      ASSERT_THAT(operations[static_cast<size_t>(rank)]->status(), support::IsOk());
      ASSERT_EQ(data[static_cast<size_t>(rank)][count - 1], static_cast<float>(world.size()));
      const PathModel& model = world.team(rank)->refiner().selector().model();
      ASSERT_EQ(model.latency, first.latency) << "rank " << rank << " after call " << number;
      ASSERT_EQ(model.bytes_per_second, first.bytes_per_second) << "rank " << rank << " after call " << number;
    }
  }
}

TEST(Refinement, CorrectsAFitThatIsFarOff) {
  for (const auto& [latency, bandwidth] : {std::pair{8.0, 1.0}, {1.0, 8.0}, {0.125, 1.0}, {1.0, 0.125}, {8.0, 8.0}}) {
    const PathModel truth = TrueModel();
    PathModel believed = truth;
    believed.latency *= latency;
    believed.bytes_per_second *= bandwidth;
    SimWorld world(Network(), false, {}, believed);
    RunCalls(world, 40);
    const PathModel& learnt = world.team(0)->refiner().selector().model();
    EXPECT_LT(std::abs(std::log2(learnt.latency / truth.latency)), 1) << latency << " " << bandwidth;
    EXPECT_LT(std::abs(std::log2(learnt.bytes_per_second / truth.bytes_per_second)), 1) << latency << " " << bandwidth;
  }
}

// What calls on GPU tensors do between hosts teaches nothing, and does not put off what other calls do.
TEST(Refinement, IsDueByTheCallsThatTeach) {
  PathModel believed = TrueModel();
  believed.latency *= 8;
  SimWorld world(Network(), false, {}, believed);
  for (int number = 0; number < 40; ++number) {
    RunCalls(world, 1, number);
    std::vector<std::vector<float>> data(static_cast<size_t>(world.size()), std::vector<float>(100, 1));
    std::vector<std::shared_ptr<internal::HierarchicalOperation>> rails;
    for (int rank = 0; rank < world.size(); ++rank) {
      auto& own = data[static_cast<size_t>(rank)];
      const Call call{.kind = CallKind::kAllReduce, .in = own, .out = own, .timeout = std::chrono::seconds(10)};
      rails.push_back(std::make_shared<internal::HierarchicalRail>(world.team(rank), call));
    }
    ASSERT_TRUE(world.Run(rails, std::chrono::seconds(100)));
    for (const auto& rail : rails) ASSERT_THAT(rail->status(), support::IsOk());
  }
  const PathModel& learnt = world.team(0)->refiner().selector().model();
  EXPECT_LT(std::abs(std::log2(learnt.latency / TrueModel().latency)), 1);
}

TEST(Refinement, LeavesAFitThatIsRightAsItIs) {
  SimWorld world(Network());
  RunCalls(world, 40);
  EXPECT_EQ(world.team(0)->refiner().selector().model().latency, TrueModel().latency);
  EXPECT_EQ(world.team(0)->refiner().selector().model().bytes_per_second, TrueModel().bytes_per_second);
}

TEST(Refinement, IsOffWhereChoicesAreForced) {
  for (const char* forced : {"nominal", "allreduce=ring"}) {
    PathModel believed = TrueModel();
    believed.latency *= 8;
    SimWorld world(Network(), false, *internal::ParseForcedAlgorithms(forced), believed);
    RunCalls(world, 20);
    EXPECT_EQ(world.team(0)->refiner().selector().model().latency, believed.latency);
    for (uint64_t call = 1; call < 10'000; ++call) ASSERT_FALSE(world.team(0)->refiner().Due(call));
  }
}

// Times that waver by a factor of two, and now and then by ten, change nothing in a hundred agreements; a network that
// has become four times as slow does in one.
TEST(Refinement, DoesNotFlapUnderNoise) {
  const auto start = std::make_shared<Selector>(PathModel{});
  Refiner refiner(start);
  std::mt19937_64 random(5);
  const auto agree = [&](double slower) {
    while (refiner.wants_more()) {
      const int64_t bytes = random() % 2 == 0 ? 8 : 64 << 20;
      const Refiner::Transfer transfer{Collective::kAllReduce, internal::Algorithm::kRing, bytes, 4, 1};
      const double noise = random() % 5 == 0 ? 10 : std::uniform_real_distribution(0.9, 1.8)(random);
      refiner.Record(transfer, slower * noise * start->Predict(transfer.operation, transfer.algorithm, bytes, 4, 1));
    }
    refiner.Adopt(refiner.Offer());
  };
  for (int agreement = 0; agreement < 100; ++agreement) {
    agree(1);
    ASSERT_EQ(&refiner.selector(), start.get()) << agreement;
  }
  agree(4);
  EXPECT_NEAR(refiner.selector().model().latency / start->model().latency, 4, 2);
  EXPECT_NEAR(start->model().bytes_per_second / refiner.selector().model().bytes_per_second, 4, 2);
}

TEST(Refinement, LearnsNothingFromTooLittle) {
  Refiner refiner(std::make_shared<Selector>(PathModel{}));
  for (int i = 0; i < 3; ++i) refiner.Record({Collective::kAllReduce, internal::Algorithm::kRing, 8, 4, 1}, 1.0);
  EXPECT_EQ(refiner.Offer(), (Refiner::Lessons{Refiner::kNothing, Refiner::kNothing}));
  EXPECT_TRUE(refiner.Due(16) && refiner.Due(32) && refiner.Due(12'288));
  EXPECT_FALSE(refiner.Due(8) || refiner.Due(17) || refiner.Due(6144));
}

}  // namespace
}  // namespace gyre
