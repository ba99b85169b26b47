// Operations by name on tensors that are on GPUs: what comes of them.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "runtime/gpu_named_fixture.h"

namespace gyre {
namespace {

using absl::StatusCode;
using support::GpuRank;
using support::HostSizes;
using support::HostValues;
using support::IsOk;
using support::MakeNamed;
using support::MatchesStatus;
using support::Owner;
using support::RunOnGpus;
using support::Sums;
using support::TimeoutOf;
using support::Values;

// Alone; by way of the host; by IPC, where ranks of a host share a GPU; and so on each host, and then over both.
struct Where {
  HostSizes hosts;
  Owner owner = Owner::kRank;
};
const std::vector<Where> kEverywhere = {{{1}}, {{3}}, {{1, 1}}, {{2, 1}}, {{3}, Owner::kHost}, {{2, 2}, Owner::kHost}};

TEST(GpuNamedTest, AnyOrderOnTwoStreamsBeforeAndAfterItIsFrozen) {
  constexpr int kSteps = 9, kTensors = 5;
  for (unsigned seed = 0; seed < 3; ++seed) {
    for (const auto& [hosts, owner] : kEverywhere) {
      const auto body = [&](GpuRank& rank) {
        void* const other = *rank.gpu->CreateStream();
        {
          const auto named = MakeNamed(rank);
          ASSERT_NE(named, nullptr);
          HostValues values(rank);
          std::vector<GpuRank::Memory> in, out;
          for (int tensor = 0; tensor < kTensors; ++tensor) {
            const int64_t count = tensor * tensor * 137 + tensor;
            in.push_back(rank.Tensor(DType::kF32, count, tensor % 2 == 0 ? rank.stream : other));
            out.push_back(rank.Tensor(DType::kF32, count, tensor % 3 == 0 ? rank.stream : other));
          }
          auto first = rank.Tensor(DType::kF32, 33, rank.stream), second = rank.Tensor(DType::kF32, 701, other);
          auto third = rank.Tensor(DType::kI64, 5, other);
          std::mt19937 random(seed * 10 + static_cast<unsigned>(rank.rank.rank));
          for (int step = 0; step < kSteps; ++step) {
            std::vector<int> order(kTensors + 1);
            std::iota(order.begin(), order.end(), 0);
            std::ranges::shuffle(order, random);
            std::vector<Work> works;
            for (const int which : order) {
              if (which == kTensors) {
                values.Put(first.view, Values(rank.rank.rank, 20, step, 33));
                values.Put(second.view, Values(rank.rank.rank, 21, step, 701));
                values.Put(third.view, std::vector<int64_t>(5, rank.rank.rank));
                const std::vector<NamedTensor> group = {{"g1", first.view}, {"g2", second.view}, {"g3", third.view}};
                works.push_back(named->AllReduce(group));
                continue;
              }
              const TensorView from = in[static_cast<size_t>(which)].view, to = out[static_cast<size_t>(which)].view;
              values.Put(from, Values(rank.rank.rank, which, step, from.count));
              works.push_back(named->AllReduce(absl::StrCat("t", which), from, to));
            }
            for (Work& work : works) ASSERT_THAT(work.Wait(), IsOk());
            for (int which = 0; which < kTensors; ++which) {
              const TensorView to = out[static_cast<size_t>(which)].view;
              values.Expect(to, Sums(rank.rank.size, which, step, to.count));
            }
            values.Expect(first.view, Sums(rank.rank.size, 20, step, 33));
            values.Expect(second.view, Sums(rank.rank.size, 21, step, 701));
            values.Expect(third.view, std::vector<int64_t>(5, rank.rank.size * (rank.rank.size - 1) / 2));
          }
          values.Compare({rank.stream, other});
          EXPECT_EQ(named->statistics().operations, kSteps * (kTensors + 3));
          EXPECT_GT(named->statistics().frozen_operations, 0);
          ASSERT_THAT(rank.world().Barrier(), IsOk());
        }
        rank.gpu->DestroyStream(other);
      };
      RunOnGpus(hosts, seed, body, owner);
    }
  }
}

TEST(GpuNamedTest, GathersAndBroadcasts) {
  for (const auto& [hosts, owner] : kEverywhere) {
    const auto body = [](GpuRank& rank) {
      const auto named = MakeNamed(rank);
      ASSERT_NE(named, nullptr);
      HostValues values(rank);
      const int me = rank.rank.rank, size = rank.rank.size, root = size - 1;
      Gathered gathered;
      auto mine = rank.Tensor(DType::kF32, 100 * (me + 1), rank.stream);
      for (int step = 0; step < 3; ++step) {
        const void* const before = gathered.on_gpu.data;
        values.Put(mine.view, Values(me, 2, step, mine.view.count));
        const ConstTensorView part = mine.view.Slice(0, step == 1 ? 7 : mine.view.count);
        ASSERT_THAT(named->AllGather("g", part, gathered).Wait(), IsOk());
        std::vector<float> all;
        for (int rank_there = 0; rank_there < size; ++rank_there) {
          const int64_t count = step == 1 ? 7 : 100 * (rank_there + 1);
          EXPECT_EQ(gathered.counts[static_cast<size_t>(rank_there)], count);
          const std::vector<float> theirs = Values(rank_there, 2, step, count);
          all.insert(all.end(), theirs.begin(), theirs.end());
        }
        EXPECT_EQ(gathered.on_gpu.device, mine.view.device);
        EXPECT_TRUE(step == 0 || gathered.on_gpu.data == before) << "its memory is used again";
        const TensorView there(gathered.on_gpu.data, std::ssize(all), DType::kF32, gathered.on_gpu.device);
        values.Expect(there, all);
        values.Compare({rank.stream});
      }

      auto weights = rank.Tensor(DType::kF32, 2000, rank.stream), bias = rank.Tensor(DType::kF32, 3, rank.stream);
      values.Put(weights.view, Values(me, 3, 0, 2000));
      values.Put(bias.view, Values(me, 4, 0, 3));
      std::vector<NamedTensor> parameters = {{"weights", weights.view}, {"bias", bias.view}};
      if (me == 0) std::swap(parameters[0], parameters[1]);
      ASSERT_THAT(named->BroadcastParameters(parameters, root), IsOk());
      values.Expect(weights.view, Values(root, 3, 0, 2000));
      values.Expect(bias.view, Values(root, 4, 0, 3));
      values.Compare({rank.stream});
      std::vector<std::byte> object(static_cast<size_t>(me == root ? 1001 : me), std::byte(7));
      ASSERT_THAT(named->BroadcastObject("object", object, root), IsOk());
      EXPECT_EQ(object, std::vector<std::byte>(1001, std::byte(7)));
      ASSERT_THAT(rank.world().Barrier(), IsOk());
    };
    RunOnGpus(hosts, 7, body, owner);
  }
}

TEST(GpuNamedTest, AJoinedRankContributesWhatIsNeutral) {
  for (const auto& [hosts, owner] : kEverywhere) {
    const auto body = [](GpuRank& rank) {
      const auto named = MakeNamed(rank);
      ASSERT_NE(named, nullptr);
      HostValues values(rank);
      const int me = rank.rank.rank, size = rank.rank.size;
      constexpr int64_t kCount = 700;
      auto sum = rank.Tensor(DType::kF32, kCount, rank.stream), least = rank.Tensor(DType::kBF16, kCount, nullptr);
      auto product = rank.Tensor(DType::kF64, 2, rank.stream), integers = rank.Tensor(DType::kI32, 33, nullptr);
      auto more = rank.Tensor(DType::kI32, 5, rank.stream), weights = rank.Tensor(DType::kF32, 9, rank.stream);
      auto mine = rank.Tensor(DType::kF32, 10 + me, rank.stream);
      for (int step = 0; step < me + 5; ++step) {
        const int first = std::max(0, step - 4);  // the ranks from here on have data
        const auto has = size - first;
        values.Put(sum.view, std::vector<float>(kCount, static_cast<float>(me + 1)));
        values.Put(least.view, std::vector<uint16_t>(kCount, BFloat16(static_cast<float>(me + 1)).bits));
        values.Put(product.view, std::vector<double>(2, 2.0));
        values.Put(integers.view, std::vector<int32_t>(33, me + 2));
        values.Put(more.view, std::vector<int32_t>(5, me + 3));
        values.Put(weights.view, Values(me, 5, step, 9));
        values.Put(mine.view, Values(me, 6, step, 10 + me));
        Gathered gathered;
        std::vector<Work> works = {
            named->AllReduce("sum", sum.view),
            named->AllReduce("least", least.view, {.op = ReduceOp::kMin}),
            named->AllReduce("product", product.view, {.op = ReduceOp::kProduct}),
            named->AllReduce(std::vector<NamedTensor>{{"integers", integers.view}, {"more", more.view}},
                             {.op = ReduceOp::kAverage}),
            named->Broadcast("weights", weights.view, size - 1),
            named->AllGather("mine", mine.view, gathered)};
        for (Work& work : works) ASSERT_THAT(work.Wait(), IsOk()) << step;
        int of_ranks = 0;
        std::vector<float> all;
        for (int other = first; other < size; ++other) {
          of_ranks += other;
          const std::vector<float> theirs = Values(other, 6, step, 10 + other);
          all.insert(all.end(), theirs.begin(), theirs.end());
        }
        values.Expect(sum.view, std::vector<float>(kCount, static_cast<float>(of_ranks + has)));
        values.Expect(least.view, std::vector<uint16_t>(kCount, BFloat16(static_cast<float>(first + 1)).bits));
        values.Expect(product.view, std::vector<double>(2, static_cast<double>(1 << has)));
        values.Expect(integers.view, std::vector<int32_t>(33, (of_ranks + 2 * has) / has));
        values.Expect(more.view, std::vector<int32_t>(5, (of_ranks + 3 * has) / has));
        values.Expect(weights.view, Values(size - 1, 5, step, 9));
        const TensorView there(gathered.on_gpu.data, std::ssize(all), DType::kF32, gathered.on_gpu.device);
        values.Expect(there, all);
        values.Compare({rank.stream, nullptr});
      }
      int last = -1;
      ASSERT_THAT(named->Join(&last).Wait(), IsOk());
      EXPECT_EQ(last, size - 1);
      ASSERT_THAT(rank.world().Barrier(), IsOk());
    };
    RunOnGpus(hosts, 11, body, owner);
  }
}

TEST(GpuNamedTest, WhatIsNotAlikeIsNamed) {
  const auto body = [](GpuRank& rank) {
    const auto named = MakeNamed(rank);
    ASSERT_NE(named, nullptr);
    auto tensor = rank.Tensor(DType::kF32, 10, rank.stream);
    std::vector<float> host(10, 1.0f);
    const bool second = rank.rank.rank == 1;
    void* const captured = *rank.gpu->CreateStream();
    rank.gpu->LetProgramCapture(captured);
    for (int round = 0; round < 2; ++round) {  // before the order is frozen, and after
      const absl::Status mixed = named->AllReduce("x", second ? tensor.view : TensorView(host)).Wait();
      EXPECT_THAT(mixed, MatchesStatus(StatusCode::kInvalidArgument, "allreduce(f32, 10 elements on a GPU, sum)"));
      EXPECT_THAT(mixed, MatchesStatus(StatusCode::kInvalidArgument, "allreduce(f32, 10 elements, sum)"));
      EXPECT_EQ(host, std::vector<float>(10, 1.0f));
      // Wrong on one rank: the other need not wait for it.
      const auto refused = [&](const TensorView& wrong, const std::string& why) {
        EXPECT_THAT(named->AllReduce("y", second ? wrong : tensor.view).Wait(),
                    MatchesStatus(StatusCode::kInvalidArgument, second ? why.c_str() : "a call with wrong arguments"));
      };
      refused(TensorView(tensor.view.data, 10, DType::kF32, {.gpu = 1}), "is on GPU 1; those before it were on GPU 0");
      refused(TensorView(tensor.view.data, 10, DType::kF32, rank.on(reinterpret_cast<void*>(uintptr_t{2}))),
              "cudaStreamPerThread");
      refused(TensorView(tensor.view.data, 10, DType::kF32, rank.on(captured)), "is being captured");
      EXPECT_THAT(named->AllReduce("z", tensor.view, host).Wait(),
                  MatchesStatus(StatusCode::kInvalidArgument, "input (on GPU 0) and output (on the host)"));
      for (int step = 0; step < 5; ++step) {
        HostValues values(rank);
        values.Put(tensor.view, Values(rank.rank.rank, 1, step, 10));
        ASSERT_THAT(named->AllReduce("x", tensor.view).Wait(), IsOk());
        values.Expect(tensor.view, Sums(2, 1, step, 10));
        values.Compare({rank.stream});
      }
    }
    EXPECT_GE(named->statistics().freezes, 1);
    ASSERT_THAT(rank.world().Barrier(), IsOk());
    rank.gpu->DestroyStream(captured);
  };
  for (const Owner owner : {Owner::kRank, Owner::kHost}) RunOnGpus({2}, 1, body, owner);
}

TEST(GpuNamedTest, WhoJoinsWithoutATensorOnAGpuHasNothingToContribute) {
  RunOnGpus({2}, 1, [](GpuRank& rank) {
    const auto named = MakeNamed(rank);
    ASSERT_NE(named, nullptr);
    auto tensor = rank.Tensor(DType::kF32, 10, rank.stream);
    if (rank.rank.rank == 0) {
      EXPECT_THAT(named->AllReduce("x", tensor.view).Wait(),
                  MatchesStatus(StatusCode::kInvalidArgument, "rank 1 joined before it had brought a tensor on a GPU"));
    }
    EXPECT_THAT(named->Join().Wait(), IsOk());
    ASSERT_THAT(rank.world().Barrier(), IsOk());
  });
}

TEST(GpuNamedTest, AGpuThatFailsEndsAll) {
  RunOnGpus({2}, 1, [](GpuRank& rank) {
    const auto named = MakeNamed(rank);
    ASSERT_NE(named, nullptr);
    auto one = rank.Tensor(DType::kF32, 10, rank.stream), two = rank.Tensor(DType::kF32, 900, rank.stream);
    const std::vector<NamedTensor> group = {{"one", one.view}, {"two", two.view}};
    ASSERT_THAT(named->AllReduce(group).Wait(), IsOk());
    const bool fails = rank.rank.rank == 1;
    rank.Meet();
    rank.gpu->Stall(fails);
    Work work = named->AllReduce(group);
    if (fails) rank.gpu->Fail(absl::InternalError("fell off the bus"));
    EXPECT_THAT(work.Wait().message(), testing::HasSubstr("fell off the bus"));
    EXPECT_THAT(named->AllReduce("x", one.view).Wait(),
                MatchesStatus(StatusCode::kFailedPrecondition, "fell off the bus"));
    rank.gpu->Fail(absl::OkStatus());
    rank.gpu->Stall(false);
    rank.gpu->Free(nullptr);  // does all that is queued
  });
}

TEST(GpuNamedTest, AGpuThatHangsIsNamedByTheDeadline) {
  RunOnGpus({2}, 1, [](GpuRank& rank) {
    auto named = MakeNamed(rank);
    ASSERT_NE(named, nullptr);
    auto tensor = rank.Tensor(DType::kF32, 3000, rank.stream);
    ASSERT_THAT(named->AllReduce("x", tensor.view).Wait(), IsOk());
    const bool hangs = rank.rank.rank == 1;
    rank.Meet();
    rank.gpu->Stall(hangs);
    const absl::Status status = named->AllReduce("x", tensor.view, {.timeout = TimeoutOf(hangs)}).Wait();
    EXPECT_THAT(status.message(), testing::HasSubstr(hangs ? "GPU 0 of rank 1 had not copied" : "rank 1"));
    EXPECT_THAT(named->AllReduce("x", tensor.view).Wait(), MatchesStatus(StatusCode::kFailedPrecondition, "ended"));
    rank.gpu->Stall(false);
    rank.gpu->Free(nullptr);
  });
}

TEST(GpuNamedTest, MemoryGoesBackAtTheEnd) {
  RunOnGpus({2}, 1, [](GpuRank& rank) {
    auto one = rank.Tensor(DType::kF32, 10, rank.stream), two = rank.Tensor(DType::kF32, 900, rank.stream);
    auto large = rank.Tensor(DType::kF32, 1 << 19, rank.stream), rest = rank.Tensor(DType::kF32, 5, rank.stream);
    const size_t before = rank.gpu->allocations();
    {
      const auto named = MakeNamed(rank);
      ASSERT_NE(named, nullptr);
      for (int step = 0; step < 3; ++step) {
        ASSERT_THAT(named->AllReduce(std::vector<NamedTensor>{{"one", one.view}, {"two", two.view}}).Wait(), IsOk());
        EXPECT_EQ(rank.gpu->allocations(), before + 1);
      }
      ASSERT_THAT(named->AllReduce(std::vector<NamedTensor>{{"large", large.view}, {"rest", rest.view}}).Wait(),
                  IsOk());
      EXPECT_EQ(rank.gpu->allocations(), before + 2);
      ASSERT_THAT(rank.world().Barrier(), IsOk());
    }
    ASSERT_THAT(rank.world().Barrier(), IsOk());
    EXPECT_EQ(rank.gpu->allocations(), before);
  });
}

}  // namespace
}  // namespace gyre
