// Calls that must end by their deadline, whatever holds them up: an earlier call, their own work, nobody there.
#include <algorithm>
#include <chrono>
#include <thread>
#include <vector>

#include "conformance/failure_fixture.h"

namespace gyre {
namespace {

INSTANTIATE_TEST_SUITE_P(All, Failure, testing::Values(Mode::kThreads, Mode::kProcesses),
                         [](const auto& info) { return support::ModeName(info.param); });

bool IsTooLate(const absl::Status& status) {
  return status.code() == StatusCode::kDeadlineExceeded ||
         (status.code() == StatusCode::kAborted && absl::StrContains(status.message(), "timed out"));
}

TEST_P(Failure, ACallBehindABlockingOneKeepsItsDeadline) {
  support::RunRanks(GetParam(), 2, [](const Rank& rank) {
    auto runtime = JoinJob(rank);
    ASSERT_NE(runtime, nullptr);
    Communicator& world = runtime->world();
    if (rank == 1) {  // never calls
      std::this_thread::sleep_for(milliseconds(2500));
      return;
    }
    std::thread first([&] {
      EXPECT_THAT(world.Barrier({.timeout = seconds(6)}), MatchesStatus(StatusCode::kAborted, "waited for earlier"));
    });
    std::this_thread::sleep_for(milliseconds(300));
    const auto start = steady_clock::now();
    std::vector<float> data(10);
    EXPECT_THAT(world.AllReduce(data, {.timeout = milliseconds(500)}),
                MatchesStatus(StatusCode::kDeadlineExceeded, "waited for earlier calls"));
    EXPECT_GE(SecondsSince(start), 0.49);
    EXPECT_LT(SecondsSince(start), 1.5);
    first.join();
    // The lane is free again: what is called now is answered at once.
    EXPECT_THAT(world.BarrierAsync().Wait(), MatchesStatus(StatusCode::kFailedPrecondition, "unusable"));
  });
}

TEST_P(Failure, ARefusedCallKeepsItsOwnDeadline) {
  support::RunRanks(GetParam(), 2, [](const Rank& rank) {
    auto runtime = JoinJob(rank);
    ASSERT_NE(runtime, nullptr);
    if (rank == 1) {  // never calls
      std::this_thread::sleep_for(milliseconds(2500));
      return;
    }
    const auto start = steady_clock::now();
    std::vector<float> in(10), out(11);
    EXPECT_THAT(runtime->world().AllReduce(in, out, {.timeout = milliseconds(200)}),
                MatchesStatus(StatusCode::kInvalidArgument, "11 elements; 10 expected"));
    EXPECT_GE(SecondsSince(start), 0.19);
    EXPECT_LT(SecondsSince(start), 1.5);
    EXPECT_THAT(runtime->world().AllReduceAsync(in, out, {.timeout = milliseconds(-1)}).Wait(),
                MatchesStatus(StatusCode::kInvalidArgument, "timeout must be positive"));
  });
}

TEST_P(Failure, AShortDeadlineIsKeptToTheMillisecond) {
  support::RunRanks(GetParam(), 2, [](const Rank& rank) {
    auto runtime = JoinJob(rank);
    ASSERT_NE(runtime, nullptr);
    constexpr int kTries = 10;  // a busy machine may make some of them late
    std::vector<std::unique_ptr<Communicator>> groups;
    for (int i = 0; i < kTries; ++i) {
      auto group = runtime->world().Split({{0, 1}});
      ASSERT_THAT(group, IsOk());
      groups.push_back(*std::move(group));
    }
    ASSERT_THAT(runtime->world().Barrier(), IsOk());
    double blocking = 1, waited = 1;
    for (int i = 0; rank == 0 && i < kTries; ++i) {
      const auto start = steady_clock::now();
      const CallOptions brief{.timeout = milliseconds(5)};
      const absl::Status status = i % 2 == 0 ? groups[i]->Barrier(brief) : groups[i]->BarrierAsync(brief).Wait();
      double& fastest = i % 2 == 0 ? blocking : waited;
      fastest = std::min(fastest, SecondsSince(start));
      EXPECT_THAT(status, MatchesStatus(StatusCode::kDeadlineExceeded, "rank 1 did not come"));
      EXPECT_GE(SecondsSince(start), 0.0049);
    }
    if (rank == 0) {
      EXPECT_LT(blocking, 0.02);
      EXPECT_LT(waited, 0.02);
    }
    ASSERT_THAT(runtime->world().Barrier(), IsOk());
  });
}

// All ranks are there, and the work alone takes longer than allowed.
TEST_P(Failure, AnOperationThatMakesProgressKeepsItsDeadline) {
  support::RunRanks(GetParam(), 2, [](const Rank& rank) {
    auto runtime = JoinJob(rank);
    ASSERT_NE(runtime, nullptr);
    auto groups = {runtime->world().Split({{0, 1}}), runtime->world().Split({{0, 1}})};
    auto buffer = runtime->Allocate(192 << 20);
    ASSERT_THAT(buffer, IsOk());
    std::vector<float> plain(32 << 20);
    std::span<float> memories[] = {buffer->As<float>(), plain};
    int i = 0;
    for (const auto& group : groups) {
      ASSERT_THAT(group, IsOk());
      std::span<float> floats = memories[i++];
      std::ranges::fill(floats, 1.0f);
      ASSERT_THAT(runtime->world().Barrier(), IsOk());
      const absl::Status status = (*group)->AllReduce(floats, {.timeout = milliseconds(1)});
      EXPECT_TRUE(IsTooLate(status)) << status;
      ASSERT_THAT(runtime->world().Barrier(), IsOk());
    }
  });
}

}  // namespace
}  // namespace gyre
