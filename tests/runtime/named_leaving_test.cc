// Ranks that leave at once when their last operation by name has ended: the others may be yet to end it.
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gtest/gtest.h"
#include "gyre/gyre.h"
#include "support/job.h"
#include "support/ranks.h"
#include "support/status_matchers.h"

namespace gyre {
namespace {

using absl::StatusCode;
using support::HostSizes;
using support::IsOk;
using support::MatchesStatus;

class NamedLeaving : public testing::TestWithParam<HostSizes> {
 protected:
  static int Size() { return std::accumulate(GetParam().begin(), GetParam().end(), 0); }

  // Who is faster than the others changes from round to round.
  static void Run(int rounds, const std::function<void(Runtime& runtime, NamedOperations& named)>& body) {
    for (int round = 0; round < rounds; ++round) {
      support::RunThreads(Size(), [&](const support::Rank& rank) {
        const auto runtime = support::JoinJob(rank, support::JobOptions(rank, GetParam()));
        ASSERT_NE(runtime, nullptr);
        const auto named = NamedOperations::Create(runtime->world());
        ASSERT_THAT(named, IsOk());
        body(*runtime, **named);
        runtime->Shutdown();
      });
    }
  }
};

TEST_P(NamedLeaving, TheLastOperationEndsWellOnAllRanks) {
  Run(20, [](Runtime& /*runtime*/, NamedOperations& named) {
    std::vector<float> data(1 << 16, 1.0f);
    EXPECT_THAT(named.AllReduce("x", data).Wait(), IsOk());
    EXPECT_EQ(data.back(), Size());
  });
}

// All were decided before the first has ended.
TEST_P(NamedLeaving, TheLastOperationsEndWellOnAllRanks) {
  Run(10, [](Runtime& runtime, NamedOperations& named) {
    std::vector<float> data(1 << 16, 1.0f), more(7, 2.0f), news(100, static_cast<float>(runtime.world().rank()));
    std::vector<Work> works = {named.AllReduce("x", data), named.AllReduce("y", more), named.Broadcast("z", news, 0)};
    for (Work& work : works) EXPECT_THAT(work.Wait(), IsOk());
    EXPECT_EQ(data.back(), Size());
    EXPECT_EQ(more.back(), 2 * Size());
    EXPECT_EQ(news.back(), 0);
  });
}

TEST_P(NamedLeaving, TheLastOperationOfAFrozenOrderEndsWellOnAllRanks) {
  Run(10, [](Runtime& /*runtime*/, NamedOperations& named) {
    std::vector<float> data(1000);
    for (int step = 0; step < 8; ++step) {
      data.assign(data.size(), 1.0f);
      ASSERT_THAT(named.AllReduce("x", data).Wait(), IsOk());
      ASSERT_EQ(data.back(), Size());
    }
    EXPECT_GE(named.statistics().freezes, 1);
  });
}

TEST_P(NamedLeaving, AllRanksLearnThatAllHaveJoined) {
  Run(20, [](Runtime& runtime, NamedOperations& named) {
    float one = 1;
    ASSERT_THAT(named.AllReduce("x", std::span(&one, 1)).Wait(), IsOk());
    int last = -1;
    if (runtime.world().rank() % 2 == 1) {
      EXPECT_THAT(named.Join(&last).Wait(), IsOk());
    } else {
      Work work = named.Join(&last);
      while (!work.Done()) continue;
      EXPECT_THAT(work.Wait(), IsOk());
    }
    EXPECT_GE(last, 0);
  });
}

// Though rank 0, which tells the others, leaves as soon as it knows.
TEST_P(NamedLeaving, WhoGoesOnLearnsWhoHasLeft) {
  for (const int leaves : {0, Size() - 1}) {
    Run(5, [&](Runtime& runtime, NamedOperations& named) {
      float one = 1;
      ASSERT_THAT(named.AllReduce("x", std::span(&one, 1)).Wait(), IsOk());
      if (runtime.world().rank() == leaves) return;
      const absl::Status status = named.AllReduce("y", std::span(&one, 1)).Wait();
      EXPECT_TRUE(absl::IsAborted(status) || absl::IsFailedPrecondition(status)) << status;  // heard of it before
      const bool told = absl::StrContains(status.message(), absl::StrCat("rank ", leaves, " "));
      const bool of_another = leaves == 0 && absl::StrContains(status.message(), "rank ");  // which left because of it
      EXPECT_TRUE(told || of_another) << status;
    });
  }
}

TEST_P(NamedLeaving, AllRanksLearnWhatWasWrongWithTheLastOperation) {
  if (Size() > 2) return;  // a third rank may submit it later
  Run(10, [](Runtime& runtime, NamedOperations& named) {
    std::vector<float> data(runtime.world().rank() == 0 ? 3 : 4);
    EXPECT_THAT(named.AllReduce("x", data).Wait(), MatchesStatus(StatusCode::kInvalidArgument, "'x' differs"));
  });
}

INSTANTIATE_TEST_SUITE_P(Hosts, NamedLeaving,
                         testing::Values(HostSizes{2}, HostSizes{3}, HostSizes{1, 1}, HostSizes{2, 1}),
                         [](const auto& info) { return absl::StrCat("Of_", absl::StrJoin(info.param, "_")); });

}  // namespace
}  // namespace gyre
