// What must happen between hosts when ranks and whole hosts die, freeze, come late, disagree or leave.
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "conformance/failure_fixture.h"

namespace gyre {
namespace {

int SizeOf(const HostSizes& hosts) {
  return std::accumulate(hosts.begin(), hosts.end(), 0);
}

// Which of its ranks a world loses.
struct Loss {
  HostSizes hosts;
  std::vector<int> victims;
};

std::string NameOf(const testing::TestParamInfo<Loss>& info) {
  std::string name = "Hosts";
  for (const int size : info.param.hosts) name += absl::StrCat("_", size);
  name += "_without";
  for (const int rank : info.param.victims) name += absl::StrCat("_", rank);
  return name;
}

class LostHosts : public testing::TestWithParam<Loss> {
 protected:
  static bool Dies(int rank) { return std::ranges::count(GetParam().victims, rank) > 0; }

  // Allreduces until one fails; victims raise `signal` on the way.
  static void WorkUntilTheLoss(const Rank& rank, int signal, double most_seconds) {
    RuntimeOptions options = JobOptions(rank, GetParam().hosts);
    options.heartbeat_timeout = seconds(1);
    auto runtime = JoinJob(rank, options);
    ASSERT_NE(runtime, nullptr);
    std::vector<float> data(50000, 1);
    auto last_success = steady_clock::now();
    absl::Status status;
    for (int64_t i = 0; status.ok(); ++i) {
      if (i == 50 && Dies(rank)) raise(signal);
      last_success = steady_clock::now();
      status = runtime->world().AllReduce(data, {.op = ReduceOp::kMax});
    }
    if (Dies(rank)) return;  // a zombie, woken
    EXPECT_EQ(status.code(), StatusCode::kAborted) << status;
    const auto& victims = GetParam().victims;
    EXPECT_TRUE(std::ranges::any_of(victims, [&](int victim) {
      return absl::StrContains(status.message(), absl::StrCat("rank ", victim, " "));
    })) << status;
    EXPECT_LT(SecondsSince(last_success), most_seconds) << status;
  }
};

TEST_P(LostHosts, AreNamedByEverySurvivor) {
  support::ProcessGroup group(SizeOf(GetParam().hosts), [](const Rank& rank) { WorkUntilTheLoss(rank, SIGKILL, 1.0); });
  for (int r = 0; r < group.size(); ++r) {
    if (Dies(r)) {
      group.ExpectExitCode(r, 128 + SIGKILL);
    } else {
      group.ExpectSuccess(r);
    }
  }
}

TEST_P(LostHosts, AreNamedWhenFrozen) {
  support::ProcessGroup group(SizeOf(GetParam().hosts), [](const Rank& rank) { WorkUntilTheLoss(rank, SIGSTOP, 1.6); });
  for (int r = 0; r < group.size(); ++r) {
    if (!Dies(r)) group.ExpectSuccess(r);
  }
  for (int r = 0; r < group.size(); ++r) {
    if (Dies(r)) group[r].Signal(SIGCONT);
  }
  for (int r = 0; r < group.size(); ++r) {
    if (Dies(r)) group.ExpectSuccess(r);
  }
}

INSTANTIATE_TEST_SUITE_P(All, LostHosts,
                         testing::Values(Loss{{1, 1}, {0}}, Loss{{1, 1}, {1}}, Loss{{2, 2}, {1}}, Loss{{2, 2}, {2}},
                                         Loss{{3, 1}, {2}}, Loss{{3, 1}, {3}}, Loss{{2, 2}, {2, 3}},
                                         Loss{{1, 1, 1, 1}, {2}}, Loss{{1, 3, 1}, {3}}),
                         NameOf);

INSTANTIATE_TEST_SUITE_P(All, OverHosts, testing::Values(Mode::kThreads, Mode::kProcesses),
                         [](const auto& info) { return support::ModeName(info.param); });

TEST_P(OverHosts, ALateRankIsNamedAtTheDeadline) {
  OnHosts({2, 1}, [](const Rank& rank, Runtime& runtime) {
    std::vector<float> data(100, 1);
    ASSERT_THAT(runtime.world().AllReduce(data), IsOk());
    const auto start = steady_clock::now();
    if (rank == 2) std::this_thread::sleep_for(milliseconds(900));
    const absl::Status status = runtime.world().AllReduce(data, {.timeout = milliseconds(300)});
    EXPECT_FALSE(status.ok());
    if (rank != 2) {
      EXPECT_TRUE(absl::StrContains(status.message(), "rank 2 did not come")) << status;
      EXPECT_LT(SecondsSince(start), 0.8);
    }
    EXPECT_THAT(runtime.world().Barrier(), MatchesStatus(StatusCode::kFailedPrecondition, "unusable"));
  });
}

// A rank that hears of it before it makes the call finds its communicator unusable; the reason is the same.
void ExpectWrongCall(const absl::Status& status, const char* text) {
  EXPECT_TRUE(status.code() == StatusCode::kInvalidArgument || status.code() == StatusCode::kFailedPrecondition)
      << status;
  EXPECT_TRUE(absl::StrContains(status.message(), text)) << status;
}

TEST_P(OverHosts, DifferentCallsAreAnErrorOnEveryRankThatNamesBothSides) {
  OnHosts({2, 2}, [](const Rank& rank, Runtime& runtime) {
    std::vector<float> ten(10), eleven(11);
    const bool odd = rank >= 2;
    const absl::Status status = runtime.world().AllReduce(odd ? eleven : ten, {.timeout = seconds(10)});
    ExpectWrongCall(status, "called allreduce(f32, 10 elements, sum)");
    ExpectWrongCall(status, "called allreduce(f32, 11 elements, sum)");
    EXPECT_THAT(runtime.world().Barrier(), MatchesStatus(StatusCode::kFailedPrecondition, "unusable"));
  });
}

// Which names the rank that made it, to all others; that one may be alone on its host.
TEST_P(OverHosts, ARefusedCallIsAnErrorOnEveryRank) {
  const auto refused = [](const Rank& rank, Runtime& runtime) {
    const int odd = rank.size - 1;
    std::vector<float> in(10), out(rank == odd ? 9 : 10);
    const absl::Status status = runtime.world().AllReduce(in, out, {.timeout = seconds(10)});
    ExpectWrongCall(status, "output has 9 elements; 10 expected");
    if (rank != odd) ExpectWrongCall(status, absl::StrCat("rank ", odd, " ").c_str());
  };
  for (const HostSizes& hosts : {HostSizes{2, 2}, {2, 1}, {1, 1, 1}}) OnHosts(hosts, refused);
}

TEST_P(OverHosts, ShutdownEndsPendingCallsEverywhere) {
  OnHosts({1, 2}, [](const Rank& rank, Runtime& runtime) {
    std::vector<float> data(1000);
    ASSERT_THAT(runtime.world().Barrier(), IsOk());
    if (rank == 0) {
      std::this_thread::sleep_for(milliseconds(100));
      runtime.Shutdown();
      EXPECT_THAT(runtime.world().Barrier(), MatchesStatus(StatusCode::kFailedPrecondition, "shut down"));
    } else {
      EXPECT_THAT(runtime.world().AllReduce(data), MatchesStatus(StatusCode::kAborted, "aborted: rank 0 on host"));
    }
  });
}

// A rank that is through leaves at once; the others must still get what it had sent.
TEST_P(OverHosts, TheLastResultReachesSlowRanks) {
  OnHosts({1, 1, 1}, [](const Rank& rank, Runtime& runtime) {
    std::vector<float> data(300000, static_cast<float>(rank + 1));
    if (rank == 1) std::this_thread::sleep_for(milliseconds(200));
    EXPECT_THAT(runtime.world().AllReduce(data), IsOk());
    EXPECT_EQ(std::ranges::count(data, 6.0f), 300000);
  });
}

TEST_P(OverHosts, MessagesOfManyThreadsDoNotMix) {
  OnHosts({1, 1}, [](const Rank& rank, Runtime& runtime) {
    Communicator& world = runtime.world();
    const int other = 1 - rank;
    std::vector<int64_t> out(100000), in(100000), sum(1000, 1);
    std::iota(out.begin(), out.end(), int64_t{rank});
    for (int i = 0; i < 5; ++i) {
      Work send = world.SendAsync(out, other), receive = world.ReceiveAsync(in, other);
      Work reduce = world.AllReduceAsync(sum);
      EXPECT_THAT(receive.Wait(), IsOk());
      EXPECT_THAT(reduce.Wait(), IsOk());
      EXPECT_THAT(send.Wait(), IsOk());
      EXPECT_EQ(in.front(), other);
      EXPECT_EQ(in.back(), other + 99999);
    }
    EXPECT_EQ(sum.front(), 32);
  });
}

}  // namespace
}  // namespace gyre
