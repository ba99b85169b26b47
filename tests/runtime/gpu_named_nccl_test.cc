// Operations by name on tensors that are on GPUs, by a fake NCCL.
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "runtime/gpu_named_fixture.h"
#include "runtime/gpus_with_nccl.h"

namespace gyre {
namespace {

using absl::StatusCode;
using support::GpuRank;
using support::HostValues;
using support::IsOk;
using support::MakeNamed;
using support::MatchesStatus;
using support::RunByNccl;
using support::Sums;
using support::Values;

// Frozen, left by one rank, frozen again, and with a rank that has joined.
TEST(GpuNamedNcclTest, IsFrozenLeftAndJoined) {
  const auto body = [](GpuRank& rank) {
    const auto named = MakeNamed(rank);
    ASSERT_NE(named, nullptr);
    const int me = rank.rank.rank;
    auto tensor = rank.Tensor(DType::kF32, 700, rank.stream);
    auto one = rank.Tensor(DType::kF32, 33, rank.stream), two = rank.Tensor(DType::kF32, 501, rank.stream);
    const std::vector<NamedTensor> group = {{"one", one.view}, {"two", two.view}};
    HostValues values(rank);
    std::vector<float> host(700);
    for (int round = 0; round < 2; ++round) {
      for (int step = 0; step < 8; ++step) {
        values.Put(tensor.view, Values(me, 1, step, 700));
        values.Put(one.view, Values(me, 2, step, 33));
        values.Put(two.view, Values(me, 3, step, 501));
        std::vector<Work> works = {named->AllReduce("x", tensor.view), named->AllReduce(group)};
        if (me == 1) std::swap(works[0], works[1]);
        for (Work& work : works) ASSERT_THAT(work.Wait(), IsOk()) << round << " " << step;
        values.Expect(tensor.view, Sums(2, 1, step, 700));
        values.Expect(one.view, Sums(2, 2, step, 33));
        values.Expect(two.view, Sums(2, 3, step, 501));
        values.Compare({rank.stream});
      }
      EXPECT_GE(named->statistics().freezes, 1);
      EXPECT_THAT(named->AllReduce("x", me == 1 ? tensor.view : TensorView(host)).Wait(),
                  MatchesStatus(StatusCode::kInvalidArgument, "on a GPU"));
    }
    if (me == 0) {
      values.Put(tensor.view, Values(0, 1, 9, 700));
      ASSERT_THAT(named->AllReduce("x", tensor.view).Wait(), IsOk());
      values.Expect(tensor.view, Values(0, 1, 9, 700));
    }
    ASSERT_THAT(named->Join().Wait(), IsOk());
    ASSERT_THAT(rank.world().Barrier(), IsOk());  // by then both ranks' parts have been queued
    EXPECT_EQ(rank.nccl->made, 2);
    values.Compare({rank.stream});
  };
  RunByNccl({2}, 1, body);
  RunByNccl({1, 1}, 2, body);
}

}  // namespace
}  // namespace gyre
