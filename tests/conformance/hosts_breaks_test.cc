// A communicator over hosts that one rank has given up, or lost a rank of: all its ranks learn it, whoever they are
// connected with and whether or not those of their host are in a call.
#include <signal.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <numeric>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_join.h"
#include "conformance/failure_fixture.h"

namespace gyre {
namespace {

// Not a deadline: what the ranks of these tests must learn of otherwise.
constexpr seconds kFar{20};
// By when they must have learned it, however busy the machine is: before what else could tell them, which is silence of
// 10 s, kFar, or that the others come or leave after kAway.
constexpr double kSoon = 4;
constexpr seconds kAway{6};

// Rank `victim` dies after a barrier, while `waiter` alone is in a call, which must name it.
void ExpectTheLoneWaiterToLearnOfTheLoss(const HostSizes& hosts, int waiter, int victim,
                                         const std::vector<int>& members) {
  support::ProcessGroup group(std::accumulate(hosts.begin(), hosts.end(), 0), [&](const Rank& rank) {
    auto runtime = JoinJob(rank, JobOptions(rank, hosts));
    ASSERT_NE(runtime, nullptr);
    const bool member = std::ranges::count(members, rank.rank) > 0;
    auto part = runtime->world().Split(member ? members : std::vector<int>());
    ASSERT_THAT(part, IsOk());
    ASSERT_THAT(runtime->world().Barrier(), IsOk());
    if (rank == victim) {
      std::this_thread::sleep_for(milliseconds(100));
      raise(SIGKILL);
    }
    if (rank != waiter) return std::this_thread::sleep_for(kAway);
    const auto start = steady_clock::now();
    std::vector<float> data(100);
    EXPECT_THAT((*part)->AllReduce(data, {.timeout = kFar}),
                MatchesStatus(StatusCode::kAborted, absl::StrCat("rank ", victim)));
    EXPECT_LT(SecondsSince(start), kSoon);
  });
  for (int r = 0; r < group.size(); ++r) {
    if (r == victim) {
      group.ExpectExitCode(r, 128 + SIGKILL);
    } else {
      group.ExpectSuccess(r);
    }
  }
}

// In the world 0 and 2 are connected, and 1 and 3.
TEST(LostMember, IsNamedToWhomTheWorldDidNotConnectItWith) {
  ExpectTheLoneWaiterToLearnOfTheLoss({2, 2}, 0, 3, {0, 3});
}

// Ranks 1 and 2 are connected with nobody: rank 3 is alone on its host.
TEST(LostMember, IsNamedToRanksWithoutConnections) {
  ExpectTheLoneWaiterToLearnOfTheLoss({3, 1}, 2, 3, {0, 1, 2, 3});
}

// Rank 1 is stopped until the others have given it up, and goes on. They have a communicator without it.
class ResumedRank : public testing::TestWithParam<HostSizes> {
 protected:
  static constexpr int kVictim = 1;

  // A file that is there once this rank has given the victim up.
  static std::filesystem::path GivenUpBy(const std::filesystem::path& directory, int rank) {
    return directory / absl::StrCat("given-up-by-", rank);
  }

  static void Run(const Rank& rank) {
    RuntimeOptions options = JobOptions(rank, GetParam());
    options.heartbeat_timeout = seconds(1);
    auto runtime = JoinJob(rank, options);
    ASSERT_NE(runtime, nullptr);
    std::vector<int> others(static_cast<size_t>(rank.size));
    std::iota(others.begin(), others.end(), 0);
    others.erase(others.begin() + kVictim);
    auto without = runtime->world().Split(rank == kVictim ? std::vector<int>() : others);
    ASSERT_THAT(without, IsOk());
    std::vector<float> data(100);
    ASSERT_THAT(runtime->world().Barrier(), IsOk());
    if (rank == kVictim) {
      raise(SIGSTOP);
      // The first may end well: the others had done their part.
      absl::Status status;
      for (int i = 0; i < 3 && status.ok(); ++i) status = runtime->world().AllReduce(data, {.timeout = kFar});
      EXPECT_THAT(status, MatchesStatus(StatusCode::kAborted, "rank 1 "));
      std::this_thread::sleep_for(seconds(1));
      return;
    }
    EXPECT_THAT(runtime->world().AllReduce(data, {.timeout = kFar}), MatchesStatus(StatusCode::kAborted, "rank 1 "));
    const std::ofstream given_up(GivenUpBy(rank.directory, rank.rank));
    for (int i = 0; i < 150; ++i) {
      ASSERT_THAT((*without)->AllReduce(data, {.timeout = kFar}), IsOk()) << i;
      std::this_thread::sleep_for(milliseconds(10));
    }
  }
};

TEST_P(ResumedRank, HarmsNoCommunicatorThatItIsNoMemberOf) {
  support::ProcessGroup group(std::accumulate(GetParam().begin(), GetParam().end(), 0), Run);
  const auto until = steady_clock::now() + kFar;
  for (int r = 0; r < group.size(); ++r) {
    if (r == kVictim) continue;
    while (!std::filesystem::exists(GivenUpBy(group.directory(), r)) && steady_clock::now() < until) {
      std::this_thread::sleep_for(milliseconds(1));
    }
    EXPECT_TRUE(std::filesystem::exists(GivenUpBy(group.directory(), r))) << r;
  }
  group[kVictim].Signal(SIGCONT);
  for (int r = 0; r < group.size(); ++r) group.ExpectSuccess(r);
}

INSTANTIATE_TEST_SUITE_P(All, ResumedRank, testing::Values(HostSizes{3}, HostSizes{2, 2}, HostSizes{1, 1, 1}),
                         [](const auto& info) { return absl::StrCat("Hosts_", absl::StrJoin(info.param, "_")); });

TEST_P(OverHosts, AnInterfaceThatIsNotThereIsRefused) {
  auto join = [](const Rank& rank) {
    RuntimeOptions options = JobOptions(rank, {1, 1});
    options.interface = "nosuch";
    EXPECT_THAT(Runtime::Create(options), MatchesStatus(StatusCode::kInvalidArgument, "\"nosuch\" is no interface"));
  };
  support::RunRanks(GetParam(), 2, join);
}

TEST_P(OverHosts, AWaiterLearnsOfABreakByAMessageWithinAHost) {
  OnHosts({2, 1}, [](const Rank& rank, Runtime& runtime) {
    Communicator& world = runtime.world();
    std::vector<float> data(10);
    ASSERT_THAT(world.Barrier(), IsOk());
    if (rank == 1) std::this_thread::sleep_for(kAway);
    if (rank == 0) {
      EXPECT_THAT(world.Receive(data, 1, {.timeout = milliseconds(200)}),
                  MatchesStatus(StatusCode::kDeadlineExceeded, "rank 1 did not come"));
      std::this_thread::sleep_for(kAway);
    }
    if (rank == 2) {
      const auto start = steady_clock::now();
      const absl::Status status = world.AllReduce(data, {.timeout = kFar});
      EXPECT_TRUE(absl::StrContains(status.message(), "rank 0 gave the communicator up: ")) << status;
      EXPECT_LT(SecondsSince(start), kSoon);
    }
    EXPECT_FALSE(world.Barrier({.timeout = kFar}).ok());
  });
}

TEST_P(OverHosts, WhoLeavesAtOnceStillTellsWhy) {
  OnHosts({2, 1}, [](const Rank& rank, Runtime& runtime) {
    Communicator& world = runtime.world();
    std::vector<float> data(10);
    ASSERT_THAT(world.Barrier(), IsOk());
    if (rank == 0) {
      EXPECT_FALSE(world.Receive(data, 1, {.timeout = milliseconds(100)}).ok());
      return;
    }
    const absl::Status status = world.AllReduce(data, {.timeout = kFar});
    EXPECT_TRUE(absl::StrContains(status.message(), "rank 1 did not come")) << status;
  });
}

TEST_P(OverHosts, ADestroyedCommunicatorEndsTheOthersCallsOnIt) {
  OnHosts({2, 1}, [](const Rank& rank, Runtime& runtime) {
    auto part = runtime.world().Split(std::vector{0, 1, 2});
    ASSERT_THAT(part, IsOk());
    std::vector<float> data(10, 1);
    ASSERT_THAT((*part)->AllReduce(data), IsOk());
    if (rank == 2) {
      part->reset();
    } else {
      const auto start = steady_clock::now();
      EXPECT_THAT((*part)->AllReduce(data, {.timeout = kFar}), MatchesStatus(StatusCode::kAborted, "rank 2"));
      EXPECT_LT(SecondsSince(start), kSoon);
    }
    // Nobody takes anybody for lost.
    EXPECT_THAT(runtime.world().AllReduce(data), IsOk());
  });
}

// In the world 0 and 2 are connected, and 1 and 3.
TEST_P(OverHosts, ABreakReachesWhomTheWorldDidNotConnectWith) {
  OnHosts({2, 2}, [](const Rank& rank, Runtime& runtime) {
    const bool member = rank == 0 || rank == 3;
    auto part = runtime.world().Split(member ? std::vector{0, 3} : std::vector<int>());
    ASSERT_THAT(part, IsOk());
    std::vector<float> in(10), out(rank == 0 ? 9 : 10);
    if (member) {
      const auto start = steady_clock::now();
      const absl::Status status = (*part)->AllReduce(in, out, {.timeout = kFar});
      EXPECT_TRUE(absl::StrContains(status.message(), "output has 9 elements; 10 expected")) << status;
      EXPECT_LT(SecondsSince(start), kSoon);
    }
    EXPECT_THAT(runtime.world().Barrier(), IsOk());
  });
}

// A call, and how messages have it.
struct Called {
  std::function<absl::Status(Communicator&)> call;
  std::string text;
};

template <typename T>
Called AllReduceOf(size_t count, const std::string& text) {
  return {[count](Communicator& ranks) {
            std::vector<T> data(count);
            return ranks.AllReduce(data, {.timeout = kFar});
          },
          absl::StrCat("called allreduce(", text)};
}

Called BroadcastOf(size_t count, int root, const std::string& text) {
  return {[=](Communicator& ranks) {
            std::vector<float> data(count);
            return ranks.Broadcast(data, root, {.timeout = kFar});
          },
          absl::StrCat("called broadcast(", text)};
}

// What the usual rank calls and what the odd one does. They differ in who waits for whom, too: another size has another
// algorithm, another operation other peers.
std::vector<std::pair<Called, Called>> DifferingCalls() {
  const Called small = AllReduceOf<float>(10, "f32, 10 elements, sum)");
  const Called large = AllReduceOf<float>(300'001, "f32, 300001 elements, sum)");
  const Called broadcast = BroadcastOf(10, 0, "f32, 10 elements, root 0)");
  const Called barrier = {[](Communicator& ranks) { return ranks.Barrier({.timeout = kFar}); }, "called barrier()"};
  const Called gather = {[](Communicator& ranks) {
                           std::vector<float> in(10), out(in.size() * static_cast<size_t>(ranks.size()));
                           return ranks.AllGather(in, out, {.timeout = kFar});
                         },
                         "called allgather(f32"};
  const Called exchange = {[](Communicator& ranks) {
                             std::vector<float> in(10 * static_cast<size_t>(ranks.size())), out(in.size());
                             return ranks.AllToAll(in, out, {.timeout = kFar});
                           },
                           "called alltoall(f32"};
  return {{small, AllReduceOf<float>(11, "f32, 11 elements, sum)")},
          {small, AllReduceOf<double>(10, "f64, 10 elements, sum)")},
          {small, large},
          {large, small},
          {large, AllReduceOf<double>(150'000, "f64, 150000 elements, sum)")},
          {small, broadcast},
          {broadcast, small},
          {broadcast, BroadcastOf(10, 1, "f32, 10 elements, root 1)")},
          {broadcast, BroadcastOf(2'000'000, 0, "f32, 2000000 elements, root 0)")},
          {large, barrier},
          {barrier, large},
          {gather, small},
          {exchange, large}};
}

// Some may be through before anybody knows, a root that has sent what it had, say: they learn it from their next call.
TEST_P(OverHosts, DifferingCallsAreNamedBeforeAnyDeadline) {
  const auto expect = [](const Rank& rank, Runtime& runtime) {
    std::vector<int> all(static_cast<size_t>(rank.size));
    std::iota(all.begin(), all.end(), 0);
    for (const int odd : {0, rank.size - 1}) {
      for (const auto& [usual, other] : DifferingCalls()) {
        auto ranks = runtime.world().Split(all);
        ASSERT_THAT(ranks, IsOk());
        const auto start = steady_clock::now();
        absl::Status status = (rank.rank == odd ? other : usual).call(**ranks);
        if (status.ok()) status = (*ranks)->Barrier({.timeout = kFar});
        const bool one = absl::StrContains(status.message(), usual.text);
        const bool both = one && absl::StrContains(status.message(), other.text);
        const bool next = (one || absl::StrContains(status.message(), other.text)) &&
                          absl::StrContains(status.message(), "called barrier()");
        EXPECT_TRUE(both || next) << odd << ": " << usual.text << ", " << other.text << ": " << status;
        EXPECT_TRUE(absl::StrContains(status.message(), absl::StrCat("rank ", odd, " "))) << status;
        EXPECT_LT(SecondsSince(start), kSoon) << odd << ": " << usual.text << ", " << other.text;
      }
    }
    ASSERT_THAT(runtime.world().Barrier(), IsOk());
  };
  for (const HostSizes& hosts : {HostSizes{1, 1}, {1, 1, 1}, {1, 1, 1, 1}, {2, 2}}) OnHosts(hosts, expect);
}

TEST_P(OverHosts, ARefusedMessageEndsItsCounterpart) {
  OnHosts({1, 1}, [](const Rank& rank, Runtime& runtime) {
    std::vector<float> data(10);
    const auto start = steady_clock::now();
    if (rank == 0) {
      EXPECT_THAT(runtime.world().Send(data, 1, {.timeout = milliseconds(-1)}),
                  MatchesStatus(StatusCode::kInvalidArgument, "timeout"));
    } else {
      EXPECT_THAT(runtime.world().Receive(data, 0, {.timeout = kFar}),
                  MatchesStatus(StatusCode::kInvalidArgument, "timeout"));
    }
    EXPECT_LT(SecondsSince(start), kSoon);
    EXPECT_THAT(runtime.world().Barrier(), MatchesStatus(StatusCode::kFailedPrecondition, "unusable"));
  });
}

// What a rank says of a communicator may come to others before they have made it.
TEST_P(OverHosts, AnEarlyBreakIsNotLost) {
  OnHosts({2, 1}, [](const Rank& rank, Runtime& runtime) {
    for (int i = 0; i < 20; ++i) {
      auto part = runtime.world().Split(std::vector{0, 1, 2});
      ASSERT_THAT(part, IsOk());
      std::vector<float> in(10), out(rank == i % 3 ? 9 : 10);
      const auto start = steady_clock::now();
      const absl::Status status = (*part)->AllReduce(in, out, {.timeout = kFar});
      EXPECT_TRUE(absl::StrContains(status.message(), "output has 9 elements; 10 expected")) << status;
      EXPECT_LT(SecondsSince(start), kSoon);
    }
  });
}

}  // namespace
}  // namespace gyre
