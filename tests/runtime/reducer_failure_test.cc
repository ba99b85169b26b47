// What a reducer says when ranks do not come, do not agree, or die.
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "fusion/plan.h"
#include "runtime/reducer_fixture.h"

namespace gyre {
namespace {

using absl::StatusCode;
using support::IsOk;
using support::MatchesStatus;
using support::Parameter;
using support::Rank;
using support::RunThreads;
using support::Trainer;
using testing::AnyOf;

constexpr std::chrono::milliseconds kShort{300};

// Registers what each rank has and starts; returns Start's statuses by rank.
struct Entry {
  std::string name;
  std::vector<int64_t> shape;
  DType dtype = DType::kF32;
};

std::vector<absl::Status> StartWith(const std::vector<std::vector<Entry>>& entries,
                                    const std::vector<ReducerOptions>& options = {}) {
  std::vector<absl::Status> statuses(entries.size());
  RunThreads(static_cast<int>(entries.size()), [&](const Rank& rank) {
    const auto at = static_cast<size_t>(rank.rank);
    const auto runtime = JoinJob(rank);
    auto reducer = GradientReducer::Create(runtime->world(), options.empty() ? ReducerOptions() : options[at]).value();
    for (const Entry& entry : entries[at]) {
      ASSERT_THAT(reducer->Register(entry.name, entry.shape, entry.dtype), IsOk());
    }
    statuses[at] = reducer->Start();
  });
  return statuses;
}

TEST(ReducerMismatch, NamesTheFirstGradientThatDiffers) {
  const Entry a{"a", {2, 3}}, b{"b", {4}}, c{"c", {5}};
  const struct {
    std::vector<Entry> odd;
    const char* says;
  } cases[] = {
      {{a, {"b", {2, 2}}, c}, "\"b\" is f32 [4] on rank 0 and f32 [2, 2] on rank 2"},
      {{c, {"a", {2, 3}, DType::kF16}, b}, "\"a\" is f32 [2, 3] on rank 0 and f16 [2, 3] on rank 2"},
      {{a, c}, "rank 0 has \"b\" (f32 [4]), rank 2 has not"},
      {{a, b}, "rank 0 has \"c\" (f32 [5]), rank 2 has not"},
      {{a, b, c, {"aa", {1}}}, "rank 2 has \"aa\" (f32 [1]), rank 0 has not"},
      {{a, b, c, {"d", {}}}, "rank 2 has \"d\" (f32 []), rank 0 has not"},
      {{}, "rank 0 has \"a\" (f32 [2, 3]), rank 2 has not"},
  };
  for (const auto& one : cases) {
    for (const absl::Status& status : StartWith({{a, b, c}, {c, a, b}, one.odd})) {
      EXPECT_THAT(status, MatchesStatus(StatusCode::kInvalidArgument, one.says));
    }
  }
  for (const absl::Status& status : StartWith({{a, b, c}, {c, a, b}})) EXPECT_THAT(status, IsOk());
}

TEST(ReducerMismatch, NamesOptionsThatDiffer) {
  const std::vector<std::vector<Entry>> entries = {{{"a", {1}}}, {{"a", {1}}}};
  for (const absl::Status& status : StartWith(entries, {{.accumulate = 2}, {.accumulate = 3}})) {
    EXPECT_THAT(status, MatchesStatus(StatusCode::kInvalidArgument, "accumulate 3"));
  }
}

TEST(ReducerMismatch, RefusesPlansThatDoNotFit) {
  const std::string good = "gyre-plan 1 1 1\ntensor f32 1 a\nbucket 0\n";
  for (const absl::Status& status : StartWith({{{"a", {1}}}, {{"a", {1}}}}, {{.plan = good}, {.plan = good}})) {
    EXPECT_THAT(status, MatchesStatus(StatusCode::kDataLoss, "not a saved plan"));  // it has no end
  }
  std::string plan;
  RunThreads(1, [&](const Rank& rank) {
    Trainer trainer(rank, {{{2}}, {{3}}});
    ASSERT_THAT(trainer.Start({}), IsOk());
    plan = trainer.reducer->plan();
  });
  const std::vector<Entry> two = {{"layer0", {2}}, {"layer1", {4}}};
  for (const absl::Status& status : StartWith({two, two}, {{.plan = plan}, {.plan = plan}})) {
    EXPECT_THAT(status, MatchesStatus(StatusCode::kInvalidArgument, "\"layer1\" (f32, 4 elements)"));
  }
  for (const absl::Status& status : StartWith({two, two}, {{.plan = plan}, {}})) {
    EXPECT_THAT(status, MatchesStatus(StatusCode::kInvalidArgument, "plan none"));  // rank 1's
  }
}

// Rank 1 says that all but one are ready.
TEST(ReducerDeadline, NamesTheGradientAndTheRank) {
  RunThreads(2, [](const Rank& rank) {
    Trainer trainer(rank, {{{100}}, {{20}}, {{30}}});
    ASSERT_THAT(trainer.Start({.bucket_bytes = 1, .timeout = kShort}), IsOk());
    for (size_t p = 0; p < 3; ++p) {
      if (rank != 1 || p != 1) {
        ASSERT_THAT(trainer.Give(p, 1, false), IsOk());
      }
    }
    const auto summary = trainer.reducer->Wait();
    if (rank == 0) {
      EXPECT_THAT(summary, AnyOf(MatchesStatus(StatusCode::kDeadlineExceeded, "rank 1 did not come"),
                                 MatchesStatus(StatusCode::kAborted, "on rank 1, gradients not ready: \"layer1\"")));
    } else {
      EXPECT_THAT(summary, AnyOf(MatchesStatus(StatusCode::kDeadlineExceeded, "gradients not ready: \"layer1\""),
                                 MatchesStatus(StatusCode::kAborted, "gradients not ready: \"layer1\"")));
    }
    EXPECT_THAT(trainer.reducer->Wait(), MatchesStatus(StatusCode::kFailedPrecondition, "has failed"));
    EXPECT_THAT(trainer.reducer->Ready(0), MatchesStatus(StatusCode::kFailedPrecondition, "layer1"));
  });
}

TEST(ReducerDeadline, NamesTheRankThatNeverCame) {
  std::mutex mutex;
  std::condition_variable wake;
  bool over = false;
  RunThreads(2, [&](const Rank& rank) {
    Trainer trainer(rank, {{{100}}, {{20}}});
    ASSERT_THAT(trainer.Start({.timeout = kShort}), IsOk());
    std::unique_lock lock(mutex);
    if (rank == 1) return wake.wait(lock, [&] { return over; });
    lock.unlock();
    for (size_t p = 0; p < 2; ++p) ASSERT_THAT(trainer.Give(p, 1, false), IsOk());
    EXPECT_THAT(trainer.reducer->Wait(), MatchesStatus(StatusCode::kDeadlineExceeded, "rank 1 did not come"));
    lock.lock();
    over = true;
    wake.notify_one();
  });
}

// Rank 1 has its second gradient late, on one host and on two. Everybody says so, and the step ends well.
TEST(ReducerDeadline, WarnsOfWhoIsLate) {
  for (const std::vector<int>& hosts : {std::vector<int>{2}, {1, 1}}) {
    const std::vector<fusion::TensorInfo> tensors = {{"layer0", 100, DType::kF32}, {"layer1", 20, DType::kF32}};
    const std::vector<int> order = {1, 0};
    const std::string plan = fusion::ToText({tensors, PlanBySize(tensors, order, 1)});
    testing::internal::CaptureStderr();
    RunThreads(2, [&](const Rank& rank) {
      Trainer trainer(rank, {{{100}}, {{20}}});
      ASSERT_THAT(
          trainer.StartIn(JoinJob(rank, JobOptions(rank, hosts)), {.plan = plan, .timeout = std::chrono::seconds(4)}),
          IsOk());
      ASSERT_THAT(trainer.Give(1, 1, false), IsOk());
      if (rank == 1) std::this_thread::sleep_for(std::chrono::milliseconds(1800));  // computes for long
      ASSERT_THAT(trainer.Give(0, 1, false), IsOk());
      ASSERT_THAT(trainer.reducer->Wait(), IsOk());
    });
    const std::string log = testing::internal::GetCapturedStderr();
    EXPECT_THAT(log, testing::ContainsRegex(
                         "warning rank 0: step 1, gradients \"layer0\": waiting for [^,]*rank 1[^,]*, for 1"));
    EXPECT_THAT(log, testing::ContainsRegex("warning rank 1: step 1, gradients not ready: \"layer0\", for 1"));
  }
}

TEST(ReducerLoss, ARankKilledInMidStepIsNamed) {
  support::ProcessGroup group(3, [](const Rank& rank) {
    Trainer trainer(rank, std::vector<Parameter>(20, {{5000}}));
    ASSERT_THAT(trainer.Start({.bucket_bytes = 20'000}), IsOk());
    for (int64_t step = 1;; ++step) {
      for (size_t p = 0; p < 20; ++p) {
        if (rank == 1 && step == 5 && p == 13) kill(getpid(), SIGKILL);
        ASSERT_THAT(trainer.Give(p, step, false), IsOk());
      }
      const auto summary = trainer.reducer->Wait();
      if (summary.ok()) continue;
      // Who is late to look at the end of step 4 may find the communicator given up by who is in step 5 already.
      EXPECT_THAT(step, testing::AnyOf(4, 5));
      EXPECT_THAT(summary, MatchesStatus(StatusCode::kAborted, "rank 1 was lost"));
      break;
    }
  });
  group.ExpectExitCode(1, 128 + SIGKILL);
  group.ExpectSuccess(0);
  group.ExpectSuccess(2);
}

TEST(ReducerLoss, AReducerDestroyedAmidAStepEndsTheOthers) {
  RunThreads(3, [](const Rank& rank) {
    Trainer trainer(rank, {{{100}}, {{300'000}}, {{20}}});
    ASSERT_THAT(trainer.Start({.bucket_bytes = 1}), IsOk());
    if (rank == 2) {
      ASSERT_THAT(trainer.Give(2, 1, true), IsOk());
      ASSERT_THAT(trainer.Give(1, 1, true), IsOk());
      trainer.reducer.reset();
      trainer.memory.clear();
      return;
    }
    for (size_t p = 0; p < 3; ++p) {
      // Others may learn of it before they have given all.
      if (!trainer.Give(p, 1, true).ok()) break;
    }
    EXPECT_THAT(trainer.reducer->Wait(), MatchesStatus(StatusCode::kAborted, "rank 2 destroyed its reducer"));
  });
}

// Rank 0 leaves between WaitFor and Wait: with all results, or (`given` gradients) without, when the empty one's result
// is there before it was given. It waits for nothing, and the others hear of it.
void LeaveAfterWaitFor(const ReducerOptions& options, size_t given) {
  RunThreads(2, [&](const Rank& rank) {
    Trainer trainer(rank, {{{100}}, {{0}}, {{20}}});
    ReducerOptions by_one = options;
    by_one.plan = ToText(support::PlanOf(trainer.parameters, 1));
    ASSERT_THAT(trainer.Start(by_one), IsOk());
    for (size_t p = 0; p < (rank == 0 ? given : 3); ++p) ASSERT_THAT(trainer.Give(p, 1, false), IsOk());
    for (size_t p = 0; p < 2; ++p) ASSERT_THAT(trainer.reducer->WaitFor(trainer.index[p]), IsOk());
    ASSERT_THAT(trainer.runtime->world().Barrier(), IsOk());
    const auto begin = std::chrono::steady_clock::now();
    if (rank == 0) trainer.reducer.reset();
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
    ASSERT_THAT(trainer.runtime->world().Barrier(), IsOk());
    if (rank == 0) return;
    absl::Status last = trainer.reducer->Wait().status();  // it may have all results by then
    if (last.ok()) {
      for (size_t p = 0; p < 3; ++p) ASSERT_THAT(trainer.Give(p, 2, false), IsOk());
      last = trainer.reducer->Wait().status();
    }
    EXPECT_THAT(last, MatchesStatus(StatusCode::kAborted, "rank 0 destroyed its reducer amid a step"));
  });
}

TEST(ReducerLoss, AReducerDestroyedAfterAWaitForDoesNotWaitForItself) {
  for (const size_t given : {1, 2, 3}) LeaveAfterWaitFor({}, given);
  LeaveAfterWaitFor({.max_norm = 1.0}, 3);
  LeaveAfterWaitFor({.skip_non_finite = true}, 3);
}

TEST(ReducerLoss, AShutdownEndsTheWait) {
  RunThreads(2, [](const Rank& rank) {
    Trainer trainer(rank, {{{100}}, {{20}}});
    ASSERT_THAT(trainer.Start({.bucket_bytes = 1}), IsOk());
    if (rank == 1) {
      std::thread leaver([&] { trainer.runtime->Shutdown(); });
      EXPECT_THAT(trainer.reducer->Wait(), MatchesStatus(StatusCode::kFailedPrecondition, "shut down"));
      return leaver.join();
    }
    for (size_t p = 0; p < 2; ++p) ASSERT_THAT(trainer.Give(p, 1, false), IsOk());
    EXPECT_THAT(trainer.reducer->Wait(), MatchesStatus(StatusCode::kAborted, "rank 1"));
  });
}

}  // namespace
}  // namespace gyre
