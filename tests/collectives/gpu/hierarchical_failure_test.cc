// Every way in which calls of the hierarchical backend do not end well.
#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "collectives/gpu/hierarchical_fixture.h"
#include "gmock/gmock.h"
#include "support/status_matchers.h"

namespace gyre {
namespace {

using absl::StatusCode;
using support::IsOk;
using support::MatchesStatus;

using internal::Call;
using internal::CallKind;
using testing::AnyOf;
using testing::Each;
using testing::HasSubstr;
using testing::Not;

constexpr std::chrono::milliseconds kShort{150}, kLong{5000};

class HierarchicalFailure : public HierarchicalOnGpus {
 protected:
  // Hosts that exchange in different ways, of which the second has more ranks than there are rails.
  void StartUneven() { Start({{2, By::kNccl}, {3, By::kIpc}}); }

  // A call that has come as far as so many turns bring it.
  Operations Begun(int turns, std::chrono::milliseconds timeout = kLong) {
    Operations operations = NewSum().Make(backends_, timeout);
    Turn(operations, turns);
    return operations;
  }

  // Whatever `Begun` was given, something is yet to be done.
  static constexpr int kMidway[] = {1, 3, 6, 10, 15};
};

TEST_F(HierarchicalFailure, ALostRankEndsTheCallsOfAll) {
  for (const int turns : kMidway) {
    for (int lost = 0; lost < 5; ++lost) {
      StartUneven();
      ExpectSums();
      Operations operations = Begun(turns);
      operations[static_cast<size_t>(lost)] = nullptr;
      ranks_->Lose(lost);
      for (const absl::Status& status : Ended(operations)) {
        EXPECT_THAT(status, MatchesStatus(StatusCode::kAborted, absl::StrCat("rank ", lost, " was lost")))
            << "after " << turns << " turns";
      }
      ExpectUnusable();
      operations.clear();
      End();
    }
  }
}

TEST_F(HierarchicalFailure, ALostRankEndsCallsOfEveryKind) {
  constexpr int64_t kAll = 20'000, kPart = kAll / 4;  // more chunks than turns
  const std::vector<int64_t> counts(4, kPart);
  for (const CallKind kind : {CallKind::kBroadcast, CallKind::kReduceScatter, CallKind::kAllGather}) {
    for (const int turns : kMidway) {
      for (const int lost : {0, 3}) {
        Start({{2, By::kNccl}, {2, By::kIpc}});
        ExpectSums();
        std::vector<std::vector<float>> wholes(4, std::vector<float>(kAll)), parts(4, std::vector<float>(kPart));
        Operations operations;
        for (int r = 0; r < 4; ++r) {
          const TensorView whole(wholes[static_cast<size_t>(r)]), part(parts[static_cast<size_t>(r)]);
          Call call{.kind = kind, .in = whole, .out = whole, .timeout = kLong};
          if (kind == CallKind::kReduceScatter) call.out = part;
          if (kind == CallKind::kAllGather) call.in = part;
          if (kind != CallKind::kBroadcast) call.counts = counts;
          operations.push_back(backends_[static_cast<size_t>(r)]->Make(ranks_->OnGpu(r, call)));
        }
        Turn(operations, turns);
        auto left = std::exchange(operations[static_cast<size_t>(lost)], nullptr);
        ranks_->Lose(lost);
        EXPECT_THAT(Ended(operations),
                    Each(MatchesStatus(StatusCode::kAborted, absl::StrCat("rank ", lost, " was lost"))))
            << "after " << turns << " turns";
        ranks_->group(lost)->node().Close();
        EXPECT_TRUE(left->Check(std::chrono::steady_clock::now()));
        left.reset();
        operations.clear();
        End();
      }
    }
  }
}

// By another operation of the rank's own, a message say, which has told the program of it: the call says for what too.
TEST_F(HierarchicalFailure, CallsUnderWaySayForWhatTheCommunicatorWasBroken) {
  const std::string why = "a message went astray";
  for (const int turns : kMidway) {
    for (int by = 0; by < 5; ++by) {
      StartUneven();
      ExpectSums();
      Operations operations = Begun(turns);
      ranks_->team(by)->Break(absl::AbortedError(why), {-1, why});
      ranks_->team(by)->MarkTold();
      EXPECT_THAT(Ended(operations), Each(MatchesStatus(StatusCode::kAborted, why))) << "after " << turns << " turns";
      ExpectUnusable();
      operations.clear();
      End();
    }
  }
}

// Or the one of its host that others wait for over the network, who waits for it.
TEST_F(HierarchicalFailure, ARankThatDoesNotComeIsNamed) {
  for (int late = 0; late < 5; ++late) {
    for (const bool connected : {false, true}) {
      StartUneven();
      if (connected) ExpectSums();
      Operations operations = NewSum().Make(backends_, kShort);
      operations[static_cast<size_t>(late)] = nullptr;
      for (const absl::Status& status : Ended(operations)) {
        const char* const ranks = late < 2 ? "rank [01] did not come" : "rank [234] did not come";
        EXPECT_THAT(std::string(status.message()), testing::ContainsRegex(ranks));
      }
      ExpectUnusable();
      operations.clear();
      End();
    }
  }
}

TEST_F(HierarchicalFailure, AGpuThatHangsIsNamedByTheDeadline) {
  for (const int turns : kMidway) {
    StartUneven();
    ExpectSums();
    Sum& sum = NewSum();
    Operations operations;
    for (int r = 0; r < size(); ++r) {
      const bool hangs = ranks_->host(r) == 1;
      operations.push_back(backends_[static_cast<size_t>(r)]->Make(sum.Of(r, hangs ? kShort : kLong)));
      operations.back()->StartClock(std::chrono::steady_clock::now());
    }
    Turn(operations, turns);
    ranks_->gpu(2)->Stall(true);  // which ranks 2, 3 and 4 share
    for (const absl::Status& status : Ended(operations)) {
      EXPECT_EQ(status.code(), StatusCode::kDeadlineExceeded) << status;
      EXPECT_THAT(std::string(status.message()),
                  testing::ContainsRegex("GPU 0 of rank [23] had not copied its share of chunk [1-5] of 5 to the host"))
          << "after " << turns << " turns";
    }
    ExpectUnusable();
    operations.clear();
    End();
  }
}

TEST_F(HierarchicalFailure, AGpuThatFailsIsNamed) {
  for (const int turns : kMidway) {
    StartUneven();
    ExpectSums();
    Operations operations = Begun(turns);
    ranks_->gpu(2)->Fail(absl::InternalError("an invalid memory access"));
    for (const absl::Status& status : Ended(operations)) {
      EXPECT_THAT(std::string(status.message()),
                  AnyOf(HasSubstr("an invalid memory access"), HasSubstr("'s GPU failed")));
    }
    ranks_->gpu(2)->Fail(absl::OkStatus());
    ExpectUnusable();
    operations.clear();
    End();
  }
}

// The program is told of the failure and writes its tensors anew: what the call has queued comes before that.
TEST_F(HierarchicalFailure, WhatWasQueuedComesBeforeWhatTheProgramDoesAfterAnError) {
  for (int turns = 1; turns < 20; ++turns) {
    Start({{2, By::kIpc}, {2, By::kIpc}}, static_cast<uint64_t>(turns));
    ExpectSums();
    std::vector<std::vector<float>> values(4, std::vector<float>(kChunks, 1.0f));
    const std::vector<float> anew(kChunks, 7.0f);
    Operations operations;
    for (int r = 0; r < 4; ++r) {
      auto& mine = values[static_cast<size_t>(r)];
      const Call call{.kind = CallKind::kAllReduce, .in = mine, .out = mine, .timeout = kShort};
      operations.push_back(backends_[static_cast<size_t>(r)]->Make(ranks_->OnGpu(r, call)));
      operations.back()->StartClock(std::chrono::steady_clock::now());
    }
    Turn(operations, turns);
    for (const int r : {0, 2}) ranks_->gpu(r)->Stall(true);
    operations[3] = nullptr;
    EXPECT_THAT(Ended(operations), Each(Not(IsOk())));
    for (int r = 0; r < 3; ++r) {
      ASSERT_THAT(
          ranks_->gpu(r)->Copy(values[static_cast<size_t>(r)].data(), anew.data(), kChunks * 4, ranks_->stream(r)),
          IsOk());
    }
    for (const int r : {0, 2}) ranks_->gpu(r)->Stall(false);
    ranks_->Settle();
    for (size_t r = 0; r < 3; ++r) EXPECT_EQ(values[r], anew) << "of rank " << r << " after " << turns << " turns";
    operations.clear();
    End();
  }
}

// --- Calls that differ, or are refused ---

TEST_F(HierarchicalFailure, CallsThatDifferEndOnAllRanks) {
  for (const bool whole_hosts : {false, true}) {
    StartUneven();
    ExpectSums();
    Sum &sum = NewSum(1000), &other = NewSum(999);
    Operations operations;
    for (int r = 0; r < size(); ++r) {
      const bool odd = whole_hosts ? ranks_->host(r) == 1 : r == 3;
      operations.push_back(backends_[static_cast<size_t>(r)]->Make(odd ? other.Of(r) : sum.Of(r)));
    }
    for (const absl::Status& status : Ended(operations)) {
      EXPECT_THAT(status, MatchesStatus(StatusCode::kInvalidArgument, "called allreduce(f32, 999 elements on a GPU"));
      EXPECT_THAT(status, MatchesStatus(StatusCode::kInvalidArgument, "called allreduce(f32, 1000 elements on a GPU"));
    }
    ExpectUnusable();
    operations.clear();
    End();
  }
}

// Itself it hears of nothing else, in whatever order they come.
TEST_F(HierarchicalFailure, ARankWithoutMemoryTellsAllOthers) {
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    Start({{2, By::kNccl}, {3, By::kIpc}}, seed);
    auto& arena = *ranks_->group(4)->node().arena();
    std::vector<std::byte*> taken;
    for (int64_t bytes = int64_t{8} << 20; bytes >= 128; bytes /= 2) {
      for (auto piece = arena.Allocate(bytes); piece.ok(); piece = arena.Allocate(bytes)) taken.push_back(*piece);
    }
    const auto statuses = AllReduce();
    EXPECT_EQ(statuses[4].code(), StatusCode::kResourceExhausted) << statuses[4];
    for (size_t r = 0; r < 4; ++r) {
      EXPECT_THAT(std::string(statuses[r].message()), HasSubstr(std::string(statuses[4].message())));
    }
    ExpectUnusable();
    for (std::byte* const piece : taken) arena.Free(piece);
    End();
  }
}

TEST_F(HierarchicalFailure, WhereMemoryCannotBeSharedAllRanksAreTold) {
  Start({{2, By::kIpc}, {2, By::kIpc}, {1, By::kAlone}});
  ranks_->gpu(2)->sharing().Refuse(absl::UnavailableError("the GPUs are no peers"));
  const auto statuses = AllReduce();
  for (size_t r = 0; r < 5; ++r) {
    const bool there = r == 2 || r == 3;
    EXPECT_THAT(statuses[r],
                MatchesStatus(StatusCode::kUnavailable, there ? "rank 2 cannot share its GPU's memory: the GPUs are no"
                                                              : "a rank of another host cannot exchange"));
  }
  ranks_->gpu(2)->sharing().Refuse(absl::OkStatus());
  ExpectSums();  // nothing was changed
}

// --- What NCCL does ---

TEST_F(HierarchicalFailure, NcclsErrorsEndTheCallsOfAll) {
  StartUneven();
  ExpectSums();
  nccl(0).never_launches = true;
  nccl(0).Break(1, absl::InternalError("a bus that went away"));
  for (const absl::Status& status : AllReduce()) {
    EXPECT_THAT(status, MatchesStatus(StatusCode::kInternal, "a bus that went away"));
  }
  ExpectUnusable();
}

TEST_F(HierarchicalFailure, OneThatNeverConnectsEndsAtTheDeadline) {
  StartUneven();
  nccl(0).never_connects = true;
  for (const absl::Status& status : AllReduce(kChunks, kShort)) {
    EXPECT_THAT(std::string(status.message()), HasSubstr("timed out after 0.15 s"));
  }
  ExpectUnusable();
}

// What it has aborted ends on the GPU as it may: hosts that know nothing of that must not be given it for a sum.
TEST_F(HierarchicalFailure, WhatNcclHasAbortedGoesToNoOtherHost) {
  StartUneven();
  ExpectSums();
  EXPECT_TRUE(ranks_->RunWatches());
  ranks_->gpu(0)->Stall(true);
  const auto start = std::chrono::steady_clock::now();
  const Operations operations = NewSum(kOneChunk).Make(backends_, kLong);
  (void)ranks_->Run(operations, kShort);  // as far as it goes
  for (int r = 0; r < 2; ++r) nccl(0).Break(r, absl::InternalError("a bus that went away"));
  (void)ranks_->Run(operations, std::chrono::milliseconds(20));
  EXPECT_TRUE(nccl(0).AbortsBecome(2));
  EXPECT_FALSE(operations[0]->Check(start + kLong + kShort)) << "at the deadline, before NCCL's reason is told";
  ranks_->gpu(0)->Stall(false);
  EXPECT_THAT(Ended(operations), Each(MatchesStatus(StatusCode::kInternal, "a bus that went away")));
  ExpectUnusable();
}

TEST_F(HierarchicalFailure, AShutDownEndsCalls) {
  StartUneven();
  ExpectSums();
  const Operations operations = Begun(3);
  for (int r = 0; r < size(); ++r) ranks_->group(r)->node().Close();
  for (const absl::Status& status : Ended(operations)) {
    EXPECT_THAT(status, MatchesStatus(StatusCode::kFailedPrecondition, "shut down"));
  }
}

}  // namespace
}  // namespace gyre
