// Collectives that reduce, held against the definitions.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
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
using support::ReadElement;

TEST_P(Conformance, AllReduceEveryTypeAndReduction) {
  Run([](Runtime& runtime, Communicator& world) {
    for (DType dtype : kAllTypes) {
      for (ReduceOp op : {ReduceOp::kSum, ReduceOp::kAverage, ReduceOp::kMin, ReduceOp::kMax, ReduceOp::kProduct}) {
        if (dtype == DType::kBool && op == ReduceOp::kAverage) continue;
        for (int64_t count : {1, 37, 20000, 20001}) {
          const Place place = count == 20000 ? Place::kPlain : Place::kArena;  // 20001: pushed, both from the arena
          Tensor in(runtime, place, dtype, count), out(runtime, Place::kArena, dtype, count);
          FillExact(in.view(), 1, world.rank());
          ASSERT_THAT(world.AllReduce(in.view(), out.view(), {.op = op}), IsOk());
          for (int64_t i = 0; i < count; i += 1 + count / 50) {
            const double expected = Reduced(op, dtype, 1, world.size(), i);
            ASSERT_NEAR(out.at(i), expected, std::abs(expected) * RelativeTolerance(dtype))
                << DTypeName(dtype) << " " << ReduceOpName(op) << " element " << i << " of " << count;
          }
        }
      }
    }
  });
}

TEST_P(Conformance, AllReduceEverySizeAndPlace) {
  Run([](Runtime& runtime, Communicator& world) {
    uint64_t seed = 10;
    for (Place place : {Place::kPlain, Place::kArena, Place::kMixed, Place::kUnaligned}) {
      for (int64_t count : kCounts) {
        for (bool in_place : {true, false}) {
          ++seed;
          Tensor a(runtime, place, DType::kF32, count), b(runtime, place, DType::kF32, count);
          FillExact(a.view(), seed, world.rank());
          const TensorView out = in_place ? a.view() : b.view();
          ASSERT_THAT(world.AllReduce(a.view(), out), IsOk());
          for (int64_t i = 0; i < count; ++i) {
            ASSERT_EQ(ReadElement(out, i), Reduced(ReduceOp::kSum, DType::kF32, seed, world.size(), i))
                << "element " << i << " of " << count << " place " << static_cast<int>(place);
            if (in_place) continue;
            ASSERT_EQ(a.at(i), ExactValue(DType::kF32, seed, world.rank(), i)) << "input was changed";
          }
        }
      }
    }
  });
}

TEST_P(Conformance, AllReduceIsBitIdenticalOnAllRanks) {
  Run([](Runtime& runtime, Communicator& world) {
    for (Place place : {Place::kPlain, Place::kArena}) {
      for (int64_t count : {100, 4099, 300007}) {
        Tensor tensor(runtime, place, DType::kF32, count);
        support::FillUniform(tensor.view(), 5, world.rank());
        ASSERT_THAT(world.AllReduce(tensor.view(), {.op = ReduceOp::kAverage}), IsOk());
        std::vector<float> all(static_cast<size_t>(count * world.size()));
        ASSERT_THAT(world.AllGather(tensor.view(), all), IsOk());
        for (int r = 1; r < world.size(); ++r) {
          ASSERT_EQ(std::memcmp(all.data(), all.data() + r * count, static_cast<size_t>(count) * 4), 0) << "rank " << r;
        }
      }
    }
  });
}

TEST_P(Conformance, ScalesApplyBeforeAndAfter) {
  Run([](Runtime&, Communicator& world) {
    std::vector<double> data(100, world.rank() + 1.0);
    ASSERT_THAT(world.AllReduce(data, {.prescale = 0.5, .postscale = 3}), IsOk());
    for (double v : data) ASSERT_DOUBLE_EQ(v, 1.5 * world.size() * (world.size() + 1) / 2);
  });
}

// Half precision ends at 65504: the sums do not fit, their averages do.
TEST_P(Conformance, AveragesOfHalvesDoNotOverflow) {
  Run([](Runtime&, Communicator& world) {
    const ReduceOptions average{.op = ReduceOp::kAverage};
    std::vector<Float16> in(static_cast<size_t>(world.size()) * 1000, Float16(60000.0f)), all(in.size()), own(1000);
    const auto expect = [](const std::vector<Float16>& results) {
      for (const Float16 result : results) ASSERT_NEAR(static_cast<float>(result), 60000, 60000.0 / 256);
    };
    ASSERT_THAT(world.AllReduce(in, all, average), IsOk());
    expect(all);
    ASSERT_THAT(world.ReduceScatter(in, own, average), IsOk());
    expect(own);
    std::ranges::fill(all, Float16(0.0f));
    ASSERT_THAT(world.Reduce(in, all, 0, {.postscale = 1.0 / world.size()}), IsOk());
    if (world.rank() == 0) expect(all);
  });
}

TEST_P(Conformance, ReduceScatterGivesEveryRankItsSegment) {
  Run([](Runtime& runtime, Communicator& world) {
    const int n = world.size();
    for (int64_t each : {0, 1, 5, 1000, 70001}) {
      std::vector<int64_t> counts(n);
      for (int r = 0; r < n; ++r) counts[r] = each + (each > 0 ? (r * 3) % 5 : 0);
      const int64_t total = std::accumulate(counts.begin(), counts.end(), int64_t{0});
      int64_t begin = std::accumulate(counts.begin(), counts.begin() + world.rank(), int64_t{0});
      for (bool in_place : {false, true}) {
        Tensor in(runtime, Place::kUnaligned, DType::kI32, total);
        Tensor separate(runtime, Place::kPlain, DType::kI32, counts[world.rank()]);
        FillExact(in.view(), 3, world.rank());
        const TensorView out = in_place ? in.view().Slice(begin, counts[world.rank()]) : separate.view();
        ASSERT_THAT(world.ReduceScatterV(in.view(), counts, out), IsOk());
        for (int64_t i = 0; i < counts[world.rank()]; ++i) {
          ASSERT_EQ(ReadElement(out, i), Reduced(ReduceOp::kSum, DType::kI32, 3, n, begin + i)) << i;
        }
      }
    }
    std::vector<float> in(n * 7), out(7);
    FillExact(in, 4, world.rank());
    ASSERT_THAT(world.ReduceScatter(in, out, {.op = ReduceOp::kMax}), IsOk());
    for (int i = 0; i < 7; ++i) {
      ASSERT_EQ(out[i], Reduced(ReduceOp::kMax, DType::kF32, 4, n, world.rank() * 7 + i));
    }
  });
}

TEST_P(Conformance, ReduceToEveryRoot) {
  Run([](Runtime& runtime, Communicator& world) {
    for (int root = 0; root < world.size(); ++root) {
      for (int64_t count : {0, 1, 9, 70001}) {
        Tensor in(runtime, Place::kPlain, DType::kF32, count), out(runtime, Place::kPlain, DType::kF32, count);
        FillExact(in.view(), root + 1, world.rank());
        // Elsewhere than on the root the output is nobody's business.
        const TensorView to = world.rank() == root ? out.view() : TensorView();
        ASSERT_THAT(world.Reduce(in.view(), to, root), IsOk());
        if (world.rank() != root) continue;
        for (int64_t i = 0; i < count; ++i) {
          ASSERT_EQ(out.at(i), Reduced(ReduceOp::kSum, DType::kF32, root + 1, world.size(), i));
        }
      }
    }
  });
}

}  // namespace
}  // namespace gyre
