// Gradients on GPUs that travel compressed, where memory is short, a GPU fails or hangs, or what it is given is not
// finite: how the step ends, on all ranks.
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "runtime/gpu_fixture.h"

namespace gyre {
namespace {

using absl::StatusCode;
using support::GpuRank;
using support::IsOk;
using support::MatchesStatus;
using support::RunOnGpus;
using support::TimeoutOf;

const std::vector<std::vector<int64_t>> kTwoShapes = {{41, 53},
                                                      {1000}};  // one that codecs take, and one that goes along
const Dgc kRefusing{.sparsity = 0.9, .non_finite = Dgc::NonFinite::kRefuse};

// Starts on GPUs alone.
std::unique_ptr<GradientReducer> StartOn(GpuRank& rank, const ReducerOptions& options) {
  auto reducer = *GradientReducer::Create(rank.world(), options);
  for (size_t t = 0; t < kTwoShapes.size(); ++t) {
    EXPECT_THAT(reducer->Register(absl::StrCat("layer", t), kTwoShapes[t], DType::kF32, rank.device()), IsOk());
  }
  EXPECT_THAT(reducer->Start(), IsOk());
  return reducer;
}

absl::Status StepOf(GradientReducer& reducer) {
  for (const int t : {1, 0}) {
    if (absl::Status ready = reducer.Ready(t); !ready.ok()) return ready;
  }
  return reducer.Wait().status();
}

TEST(GpuCompressionFailure, MemoryThatIsNotThereEndsTheStepAndLeavesNothingBehind) {
  const auto more = absl::ResourceExhaustedError("there is no more");
  for (const Compression& compression :
       {Compression(Int8{}), Compression(PowerSgd{}), Compression(Dgc{.sparsity = 0.9})}) {
    for (const bool pinned : {false, true}) {
      RunOnGpus({2}, 1, [&](GpuRank& rank) {
        auto reducer = StartOn(rank, {.compression = compression, .always_compress = true});
        rank.Meet();
        const size_t allocations = rank.gpu->allocations();
        const int64_t pinned_bytes = rank.gpu->pinned();
        if (rank.rank == 1) (pinned ? rank.gpu->FailPin(more) : rank.gpu->FailAllocate(more));
        const absl::Status status = StepOf(*reducer);
        EXPECT_EQ(status.code(), rank.rank == 1 ? StatusCode::kResourceExhausted : StatusCode::kAborted);
        for (const char* what : {"step 1, gradients \"layer", "GPU 0 of rank 1", "there is no more"}) {
          EXPECT_THAT(status.message(), testing::HasSubstr(what));
        }
        if (rank.rank == 1 && !pinned) {
          EXPECT_EQ(rank.gpu->allocations(), allocations);
        }
        reducer.reset();
        EXPECT_LT(rank.gpu->allocations(), allocations);
        rank.gpu->FailPin(absl::OkStatus());
        rank.gpu->FailAllocate(absl::OkStatus());
        // Calls of others go on, and what was pinned goes back with them.
        auto tensor = rank.Tensor(DType::kF32, 10, rank.stream);
        rank.gpu->Free(nullptr);
        ASSERT_THAT(rank.world().AllReduce(tensor.view), IsOk());
        rank.Settle(rank.stream);
        EXPECT_LE(rank.gpu->pinned(), pinned_bytes + 8192);  // a ring of small slots
      });
    }
  }
}

TEST(GpuCompressionFailure, NoRoomForWhatIsKeptEndsStartOnAllRanks) {
  RunOnGpus({2}, 1, [](GpuRank& rank) {
    auto reducer = *GradientReducer::Create(rank.world(), {.compression = Int8{}, .always_compress = true});
    ASSERT_THAT(reducer->Register("layer", kTwoShapes[0], DType::kF32, rank.device()), IsOk());
    if (rank.rank == 1) rank.gpu->FailAllocate(absl::ResourceExhaustedError("there is no more"), 2);  // the bucket is
    const absl::Status started = reducer->Start();
    const char* const what = rank.rank == 1
                                 ? "GPU 0 of rank 1: no room for what compression keeps of a gradient: there is no more"
                                 : "rank 1 could not start its reducer";
    EXPECT_THAT(started.message(), testing::HasSubstr(what));
    rank.gpu->FailAllocate(absl::OkStatus());
  });
}

TEST(GpuCompressionFailure, AGpuThatHangsEndsTheStep) {
  struct Case {
    Compression compression;
    std::string awaited;
  };
  for (const auto& [compression, awaited] :
       {Case{Int8{}, "GPU 0 of rank 1 had not brought compressed gradients"},
        Case{PowerSgd{}, "GPU 0 of rank 1 had not brought compressed gradients"},
        Case{Dgc{.sparsity = 0.9}, "GPU 0 of rank 1 had not brought compressed"},
        Case{Dgc{.sparsity = 0.9, .global = true}, "GPU 0 of rank 1 had not brought"},
        Case{Dgc{.clip = 1}, "GPU 0 of rank 1 had not looked at all gradients"},
        Case{kRefusing, "GPU 0 of rank 1 had not looked at all gradients"}}) {
    RunOnGpus({2}, 1, [&, &compression = compression, &awaited = awaited](GpuRank& rank) {
      rank.Meet();
      auto reducer =
          StartOn(rank, {.compression = compression, .always_compress = true, .timeout = TimeoutOf(rank.rank == 1)});
      for (int step = 1; step <= 3; ++step) ASSERT_THAT(StepOf(*reducer), IsOk());
      rank.Meet();
      rank.gpu->Stall(rank.rank == 1);
      const absl::Status status = StepOf(*reducer);
      EXPECT_THAT(status.message(), testing::HasSubstr(awaited));
      if (rank.rank == 1) {
        EXPECT_EQ(status.code(), StatusCode::kDeadlineExceeded);
      }
      reducer.reset();
      EXPECT_EQ(rank.gpu->blocked(), 0);
      rank.gpu->Stall(false);
      rank.gpu->Free(nullptr);
    });
  }
}

TEST(GpuCompressionFailure, AGpuThatFailsEndsTheStepOnAllRanks) {
  for (const Compression& compression :
       {Compression(Fp16{}), Compression(PowerSgd{}), Compression(TopK{.sparsity = 0.9}),
        Compression(TopK{.sparsity = 0.9, .sampled = true, .global = true})}) {
    RunOnGpus({2}, 1, [&](GpuRank& rank) {
      auto reducer = StartOn(rank, {.compression = compression, .always_compress = true});
      ASSERT_THAT(StepOf(*reducer), IsOk());
      rank.Meet();
      if (rank.rank == 1) rank.gpu->Fail(absl::InternalError("fell off the bus"));
      EXPECT_THAT(StepOf(*reducer).message(), testing::HasSubstr("fell off the bus"));
      if (rank.rank == 1) {
        EXPECT_TRUE(reducer->SaveCompression().empty());
      }
      rank.gpu->Fail(absl::OkStatus());
      rank.gpu->Free(nullptr);
    });
  }
}

// Each rank looks at its own gradients before it sends any.
TEST(GpuCompressionFailure, ALookThatFailsEndsTheStepOnAllRanks) {
  const auto more = absl::ResourceExhaustedError("there is no more");
  for (const int what : {0, 1, 2}) {
    RunOnGpus({2}, 1, [&](GpuRank& rank) {
      auto reducer = StartOn(rank, {.compression = Dgc{.clip = 1}, .always_compress = true});
      rank.Meet();
      if (rank.rank == 1) {
        if (what == 0) rank.gpu->FailSquares(more);
        if (what == 1) rank.gpu->FailPin(more);
        if (what == 2) rank.gpu->FailAllocate(more);
      }
      const absl::Status status = StepOf(*reducer);
      EXPECT_EQ(status.code(), rank.rank == 1 ? StatusCode::kResourceExhausted : StatusCode::kAborted);
      for (const char* part : {"step 1: GPU 0 of rank 1: ", "there is no more"}) {
        EXPECT_THAT(status.message(), testing::HasSubstr(part));
      }
      rank.gpu->FailPin(absl::OkStatus());
      rank.gpu->FailAllocate(absl::OkStatus());
      rank.gpu->Free(nullptr);
    });
  }
}

// Of a step that is refused nothing is kept, whichever bucket was to be the first.
TEST(GpuCompressionFailure, WhatIsNotFiniteIsRefusedBeforeAnythingChanges) {
  for (const float clip : {0.0f, 3.0f}) {
    Dgc dgc = kRefusing;
    dgc.clip = clip;
    for (const int bad : {0, 1}) {
      RunOnGpus({2}, 2, [&](GpuRank& rank) {
        auto reducer =
            *GradientReducer::Create(rank.world(), {.bucket_bytes = 9000, .compression = dgc, .always_compress = true});
        constexpr int64_t kRows = 40, kColumns = 50;
        for (const int t : {0, 1}) {
          const std::array<int64_t, 2> shape = {kRows, kColumns};
          ASSERT_THAT(reducer->Register(absl::StrCat("layer", t), shape, DType::kF32, rank.device()), IsOk());
        }
        ASSERT_THAT(reducer->Start(), IsOk());
        std::vector<float> values(kRows * kColumns);
        absl::Status status;
        std::vector<std::byte> before;
        for (int step = 1; step <= 3; ++step) {
          ASSERT_THAT(status, IsOk());
          before = reducer->SaveCompression();
          for (const int t : {1, 0}) {
            for (size_t i = 0; i < values.size(); ++i) {
              values[i] = static_cast<float>((i * 37 + static_cast<size_t>(step + t)) % 101) - 50;
            }
            if (step == 3 && t == bad && rank.rank == 1) {
              values[7] = std::numeric_limits<float>::infinity();
              values[1999] = std::numeric_limits<float>::quiet_NaN();
            }
            rank.Put(reducer->gradient(t), values.data());
            rank.Settle(rank.stream);
            ASSERT_THAT(reducer->Ready(t), IsOk());
          }
          status = reducer->Wait().status();
        }
        const std::string why =
            absl::StrCat("step 3: layer", bad, ": 2 elements of the gradient are NaN or infinite on rank 1");
        EXPECT_THAT(status.message(), testing::HasSubstr(why));
        EXPECT_EQ(status.code(), rank.rank == 1 ? StatusCode::kFailedPrecondition : StatusCode::kAborted);
        if (rank.rank == 1) {
          EXPECT_TRUE(reducer->SaveCompression() == before);
        }
        rank.gpu->Free(nullptr);
      });
    }
  }
}

}  // namespace
}  // namespace gyre
