// Calls that differ between ranks, or whose arguments are wrong.
#include <chrono>
#include <vector>

#include "conformance/failure_fixture.h"

namespace gyre {
namespace {

TEST_P(Failure, DifferentCallsAreAnErrorOnEveryRankThatNamesBothSides) {
  support::RunRanks(GetParam(), 3, [](const Rank& rank) {
    auto runtime = JoinJob(rank);
    ASSERT_NE(runtime, nullptr);
    Communicator& world = runtime->world();
    std::vector<float> floats(1000, 1), more(1001, 1);
    std::vector<double> doubles(1000, 1);
    const auto expect = [&](const absl::Status& status, const char* first, const char* second) {
      EXPECT_THAT(status, MatchesStatus(StatusCode::kInvalidArgument, first));
      EXPECT_THAT(status, MatchesStatus(StatusCode::kInvalidArgument, second));
      // In step still: the next call works.
      std::vector<int> one = {1};
      ASSERT_THAT(world.AllReduce(one), IsOk());
      ASSERT_EQ(one[0], 3);
    };
    const bool odd = rank == 1;
    expect(odd ? world.Broadcast(floats, 2) : world.AllReduce(floats),
           "rank 0 called allreduce(f32, 1000 elements, sum)", "rank 1 called broadcast(f32, 1000 elements, root 2)");
    expect(odd ? world.AllReduce(doubles) : world.AllReduce(floats), "rank 0 called allreduce(f32, 1000 elements",
           "rank 1 called allreduce(f64, 1000 elements");
    expect(world.AllReduce(odd ? more : floats), "1000 elements", "rank 1 called allreduce(f32, 1001 elements, sum)");
    expect(world.AllReduce(floats, {.op = odd ? ReduceOp::kMax : ReduceOp::kSum}), "sum", "max");
    expect(world.AllReduce(floats, {.prescale = odd ? 0.5 : 1.0}), "rank 0", "scales");
    expect(world.Broadcast(floats, odd ? 1 : 0), "root 0", "root 1");
    expect(odd ? world.Barrier() : world.AllReduce(floats), "allreduce", "rank 1 called barrier()");
    const std::vector<int64_t> counts = {400, 300, 300}, other = {300, 400, 300};
    std::vector<float> segment(rank == 0 ? 400 : 300), other_segment(rank == 1 ? 400 : 300);
    expect(odd ? world.AllGatherV(other_segment, other, floats) : world.AllGatherV(segment, counts, floats), "rank 0",
           "counts by rank differ");
    std::vector<int64_t> to = {1, 1, 1}, from = {1, 1, 1};
    if (odd) to[2] = 2;
    std::vector<float> out(odd ? 4 : 3), in(3);
    expect(world.AllToAllV(out, to, in, from), "rank 1 sends 2 elements to rank 2", "which expects 1");
    expect(world.Split(odd ? std::vector<int>{1, 2} : std::vector<int>{0, 1, 2}).status(), "rank 0's list [0, 1, 2]",
           "rank 1's [1, 2]");
    if (rank == 0) {
      EXPECT_THAT(world.Send(floats, 1), MatchesStatus(StatusCode::kInvalidArgument, "1001 elements"));
    } else if (rank == 1) {
      EXPECT_THAT(world.Receive(more, 0),
                  MatchesStatus(StatusCode::kInvalidArgument, "rank 0 called send/receive(f32, 1000"));
    }
  });
}

TEST(Arguments, AreRefusedLocallyWithAReason) {
  auto runtime = Runtime::Create({.rank = 0, .size = 1});
  ASSERT_THAT(runtime, IsOk());
  Communicator& world = (*runtime)->world();
  std::vector<float> four(4), five(5);
  std::vector<bool> unused;
  std::vector<int> integers(4);
  const auto refused = [](const absl::Status& status, const char* why) {
    EXPECT_THAT(status, MatchesStatus(StatusCode::kInvalidArgument, why));
  };
  refused(world.AllReduce(four, five), "output has 5 elements; 4 expected");
  refused(world.AllReduce(four, TensorView(integers)), "differ in dtype");
  refused(world.AllReduce(TensorView(nullptr, 3, DType::kF32)), "null pointer");
  refused(world.AllReduce(TensorView(four.data(), -1, DType::kF32)), "negative count");
  refused(world.AllReduce(integers, {.prescale = 2}), "floating-point tensors only");
  refused(world.AllReduce(four, {.timeout = milliseconds(-1)}), "timeout must be positive");
  bool flags[2] = {};
  refused(world.AllReduce(TensorView(flags, 2, DType::kBool), {.op = ReduceOp::kAverage}), "no average");
  refused(world.Broadcast(four, 1), "root 1 is not a rank");
  refused(world.Send(four, 0), "to itself");
  refused(world.Send(four, -1), "destination -1 is not a rank");
  refused(world.AllGatherV(four, {}, four), "counts has 0 entries");
  refused(world.ReduceScatter(four, five), "output has 5 elements; 4 expected");
  refused(world.AllReduceAsync(four, five).Wait(), "5 elements");
  EXPECT_THAT((*runtime)->Allocate(-1), MatchesStatus(StatusCode::kInvalidArgument, "-1 bytes"));
  EXPECT_THAT((*runtime)->Allocate(int64_t{1} << 50), MatchesStatus(StatusCode::kResourceExhausted, "arena"));
}

TEST_P(Failure, ARefusedCallTakesItsTurn) {
  support::RunRanks(GetParam(), 3, [](const Rank& rank) {
    auto runtime = JoinJob(rank);
    ASSERT_NE(runtime, nullptr);
    Communicator& world = runtime->world();
    std::vector<float> in(1000, 1), out(1000), wrong(999);
    for (bool asynchronous : {false, true}) {
      TensorView to = rank == 1 ? TensorView(wrong) : TensorView(out);
      const absl::Status status = asynchronous ? world.AllReduceAsync(in, to).Wait() : world.AllReduce(in, to);
      EXPECT_THAT(status, MatchesStatus(StatusCode::kInvalidArgument, "output has 999 elements; 1000 expected"));
      if (rank != 1) {
        EXPECT_THAT(status, MatchesStatus(StatusCode::kInvalidArgument, "rank 0 called allreduce(f32, 1000 elements"));
        EXPECT_THAT(status, MatchesStatus(StatusCode::kInvalidArgument, "rank 1 made a call that was refused"));
      }
      // The next call meets the next call.
      std::vector<float> next(1000, 10.0f);
      ASSERT_THAT(world.AllReduce(next), IsOk());
      ASSERT_EQ(next[0], 30);
    }
    if (rank == 0) {
      EXPECT_THAT(world.Send(in, 1), MatchesStatus(StatusCode::kInvalidArgument, "negative count"));
      EXPECT_THAT(world.Send(in, 1), IsOk());
    } else if (rank == 1) {
      EXPECT_THAT(world.Receive(TensorView(out.data(), -1, DType::kF32), 0),
                  MatchesStatus(StatusCode::kInvalidArgument, "negative count"));
      EXPECT_THAT(world.Receive(out, 0), IsOk());
    }
    EXPECT_THAT(world.Send(in, 7), MatchesStatus(StatusCode::kInvalidArgument, "7 is not a rank"));
    EXPECT_THAT(world.SendAsync(in, 7).Wait(), MatchesStatus(StatusCode::kInvalidArgument, "7 is not a rank"));
  });
}

}  // namespace
}  // namespace gyre
