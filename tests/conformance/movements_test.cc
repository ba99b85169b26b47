// Collectives and messages that move data, held against the definitions.
#include <numeric>
#include <span>
#include <vector>

#include "conformance/collectives_fixture.h"
#include "gtest/gtest.h"
#include "gyre/gyre.h"
#include "support/fill.h"
#include "support/status_matchers.h"

namespace gyre {
namespace {

using support::ExactValue;
using support::FillExact;
using support::IsOk;

TEST_P(Conformance, AllGatherConcatenates) {
  Run([](Runtime& runtime, Communicator& world) {
    const int n = world.size();
    for (int64_t each : {0, 1, 7, 5000, 140001}) {
      std::vector<int64_t> counts(n);
      for (int r = 0; r < n; ++r) counts[r] = (r % 3 == 1) ? 0 : each + r;  // some ranks have nothing
      const int64_t total = std::accumulate(counts.begin(), counts.end(), int64_t{0});
      for (bool in_place : {false, true}) {
        Tensor in(runtime, Place::kPlain, DType::kI16, counts[world.rank()]);
        Tensor out(runtime, Place::kArena, DType::kI16, total);
        const int64_t mine = std::accumulate(counts.begin(), counts.begin() + world.rank(), int64_t{0});
        const TensorView from = in_place ? out.view().Slice(mine, counts[world.rank()]) : in.view();
        FillExact(from, 6, world.rank());
        ASSERT_THAT(world.AllGatherV(from, counts, out.view()), IsOk());
        int64_t at = 0;
        for (int r = 0; r < n; ++r) {
          for (int64_t i = 0; i < counts[r]; ++i, ++at) ASSERT_EQ(out.at(at), ExactValue(DType::kI16, 6, r, i));
        }
      }
    }
  });
}

// Segments that would go with the header, beside one that would not.
TEST_P(Conformance, AllGatherOfVeryUnequalSegments) {
  Run([](Runtime& runtime, Communicator& world) {
    const int n = world.size(), me = world.rank();
    for (const Place place : {Place::kPlain, Place::kArena}) {
      for (int longest = 0; longest < n; ++longest) {
        std::vector<int64_t> counts(n);
        for (int r = 0; r < n; ++r) counts[r] = r == longest ? 3000 + r : 1 + r;
        Tensor in(runtime, place, DType::kF32, counts[me]);
        Tensor out(runtime, Place::kPlain, DType::kF32, std::accumulate(counts.begin(), counts.end(), int64_t{0}));
        FillExact(in.view(), longest, me);
        ASSERT_THAT(world.AllGatherV(in.view(), counts, out.view()), IsOk());
        int64_t at = 0;
        for (int r = 0; r < n; ++r) {
          for (int64_t i = 0; i < counts[r]; ++i, ++at) ASSERT_EQ(out.at(at), ExactValue(DType::kF32, longest, r, i));
        }
      }
    }
  });
}

TEST_P(Conformance, BroadcastFromEveryRoot) {
  Run([](Runtime& runtime, Communicator& world) {
    for (int root = 0; root < world.size(); ++root) {
      for (int64_t count : {0, 1, 9, 65537}) {
        Tensor tensor(runtime, Place::kUnaligned, DType::kF64, count);
        FillExact(tensor.view(), root + 1, world.rank());
        ASSERT_THAT(world.Broadcast(tensor.view(), root), IsOk());
        for (int64_t i = 0; i < count; ++i) ASSERT_EQ(tensor.at(i), ExactValue(DType::kF64, root + 1, root, i));
      }
    }
  });
}

TEST_P(Conformance, AllToAllTransposes) {
  Run([](Runtime& runtime, Communicator& world) {
    const int n = world.size(), me = world.rank();
    for (int64_t each : {0, 1, 3, 20011}) {
      Tensor in(runtime, Place::kPlain, DType::kI64, each * n), out(runtime, Place::kUnaligned, DType::kI64, each * n);
      FillExact(in.view(), 8, me);
      ASSERT_THAT(world.AllToAll(in.view(), out.view()), IsOk());
      for (int r = 0; r < n; ++r) {
        for (int64_t i = 0; i < each; ++i)
          ASSERT_EQ(out.at(r * each + i), ExactValue(DType::kI64, 8, r, me * each + i));
      }
      ASSERT_THAT(world.AllToAll(in.view(), in.view()), IsOk());  // in place
      for (int64_t i = 0; i < each * n; ++i) ASSERT_EQ(in.at(i), out.at(i));
    }
    // Ragged: rank s sends s + r elements to rank r, and none where the sum is a multiple of 3.
    const auto length = [](int s, int r) { return (s + r) % 3 == 0 ? 0 : int64_t{1000} * (s + r); };
    std::vector<int64_t> send(n), receive(n);
    for (int r = 0; r < n; ++r) send[r] = length(me, r), receive[r] = length(r, me);
    Tensor in(runtime, Place::kPlain, DType::kF32, std::accumulate(send.begin(), send.end(), int64_t{0}));
    Tensor out(runtime, Place::kPlain, DType::kF32, std::accumulate(receive.begin(), receive.end(), int64_t{0}));
    FillExact(in.view(), 9, me);
    ASSERT_THAT(world.AllToAllV(in.view(), send, out.view(), receive), IsOk());
    int64_t at = 0;
    for (int s = 0; s < n; ++s) {
      int64_t begin = 0;
      for (int r = 0; r < me; ++r) begin += length(s, r);
      for (int64_t i = 0; i < receive[s]; ++i, ++at) ASSERT_EQ(out.at(at), ExactValue(DType::kF32, 9, s, begin + i));
    }
  });
}

TEST_P(Conformance, MessagesArriveInOrderBetweenEveryPair) {
  Run([](Runtime& runtime, Communicator& world) {
    if (world.size() == 1) return;
    const int n = world.size(), me = world.rank();
    const int next = (me + 1) % n, previous = (me + n - 1) % n;
    for (int64_t count : {0, 1, 5, 50001}) {
      Tensor out(runtime, Place::kPlain, DType::kF32, count), in(runtime, Place::kUnaligned, DType::kF32, count);
      FillExact(out.view(), 12, me);
      Work sent = world.SendAsync(out.view(), next);  // all send round the ring at once: blocking sends would deadlock
      ASSERT_THAT(world.Receive(in.view(), previous), IsOk());
      ASSERT_THAT(sent.Wait(), IsOk());
      for (int64_t i = 0; i < count; ++i) ASSERT_EQ(in.at(i), ExactValue(DType::kF32, 12, previous, i));
    }
    // Many messages, collectives between them.
    std::vector<Work> works;
    std::vector<int> numbers(50);
    std::iota(numbers.begin(), numbers.end(), me * 100);
    for (int& number : numbers) works.push_back(world.SendAsync(std::span(&number, 1), next));
    ASSERT_THAT(world.Barrier(), IsOk());
    for (int i = 0; i < 50; ++i) {
      int got = -1;
      ASSERT_THAT(world.Receive(std::span(&got, 1), previous), IsOk());
      ASSERT_EQ(got, previous * 100 + i);
    }
    for (Work& work : works) ASSERT_THAT(work.Wait(), IsOk());
  });
}

}  // namespace
}  // namespace gyre
