// Deadlines of calls over several hosts.
#include <algorithm>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "conformance/failure_fixture.h"

namespace gyre {
namespace {

// Rank 2 comes late, so that one of the others waits for another host, and one within its own.
TEST_P(OverHosts, AnEndlessTimeoutNeverPasses) {
  OnHosts({2, 1}, [](const Rank& rank, Runtime& runtime) {
    std::vector<float> data(100, 1), more(300'000, 1);
    for (const int late : {0, 1, 2}) {
      if (rank == late) std::this_thread::sleep_for(milliseconds(200));
      const ReduceOptions endless{.timeout = milliseconds::max()};
      EXPECT_THAT(runtime.world().AllReduce(data, endless), IsOk());
      EXPECT_THAT(runtime.world().AllReduceAsync(more, endless).Wait(), IsOk());
    }
  });
}

TEST(EndlessTimeouts, OfARuntimeNeverPass) {
  for (const HostSizes& hosts : {HostSizes{2}, HostSizes{2, 1}}) {
    support::RunThreads(hosts.size() == 1 ? 2 : 3, [&](const Rank& rank) {
      RuntimeOptions options = JobOptions(rank, hosts);
      options.start_timeout = options.operation_timeout = milliseconds::max();
      options.heartbeat_interval = options.heartbeat_timeout = milliseconds::max();
      EXPECT_THAT(Runtime::Create(options), MatchesStatus(StatusCode::kInvalidArgument, "two heartbeat intervals"));
      options.heartbeat_interval = milliseconds(50);
      auto runtime = JoinJob(rank, options);
      ASSERT_NE(runtime, nullptr);
      std::vector<float> data(100, 1);
      if (rank == 0) std::this_thread::sleep_for(milliseconds(300));  // some heartbeats
      EXPECT_THAT(runtime->world().AllReduce(data), IsOk());
      EXPECT_EQ(data[0], rank.size);
    });
  }
}

TEST_P(OverHosts, AShortDeadlineIsKept) {
  OnHosts({2, 1}, [](const Rank& rank, Runtime& runtime) {
    constexpr int kTries = 10;  // a busy machine may make some of them late
    std::vector<std::unique_ptr<Communicator>> groups;
    for (int i = 0; i < kTries; ++i) {
      auto group = runtime.world().Split({{0, 1, 2}});
      ASSERT_THAT(group, IsOk());
      groups.push_back(*std::move(group));
    }
    ASSERT_THAT(runtime.world().Barrier(), IsOk());
    double blocking = 1, waited = 1;
    std::vector<float> data(100);
    for (int i = 0; rank == 0 && i < kTries; ++i) {
      const auto start = steady_clock::now();
      const ReduceOptions brief{.timeout = milliseconds(5)};
      const absl::Status status =
          i % 2 == 0 ? groups[i]->AllReduce(data, brief) : groups[i]->AllReduceAsync(data, brief).Wait();
      double& fastest = i % 2 == 0 ? blocking : waited;
      fastest = std::min(fastest, SecondsSince(start));
      EXPECT_THAT(status, MatchesStatus(StatusCode::kDeadlineExceeded, "rank 1 did not come"));
      EXPECT_GE(SecondsSince(start), 0.0049);
    }
    if (rank == 0) {
      EXPECT_LT(blocking, 0.05);
      EXPECT_LT(waited, 0.05);
    }
    ASSERT_THAT(runtime.world().Barrier(), IsOk());
  });
}

// Rank 0 waits for rank 2 of the other host, rank 1 for rank 0.
TEST_P(OverHosts, WhoWaitsWithinItsHostNamesTheRankOfTheOther) {
  OnHosts({2, 1}, [](const Rank& rank, Runtime& runtime) {
    Communicator& world = runtime.world();
    auto group = world.Split({{0, 1, 2}});
    ASSERT_THAT(group, IsOk());
    std::vector<float> data(100), told(1);
    if (rank < 2) {
      const milliseconds timeout(rank == 0 ? 20'000 : 500);
      const absl::Status status = (*group)->AllReduce(data, {.timeout = timeout});
      EXPECT_FALSE(status.ok());
      // Rank 0 may first learn that rank 2, which was let go by then, has made another call.
      if (rank == 1) {
        EXPECT_TRUE(absl::StrContains(status.message(), "rank 2 did not come")) << status;
      }
    }
    if (rank == 1) {
      EXPECT_THAT(world.Send(told, 2), IsOk());
    } else if (rank == 2) {
      EXPECT_THAT(world.Receive(told, 1), IsOk());  // until then it does not come
    }
    EXPECT_FALSE((*group)->Barrier().ok());
    ASSERT_THAT(world.Barrier(), IsOk());
  });
}

}  // namespace
}  // namespace gyre
