// Adasum: as defined, alike on all ranks, and independent of how they are spread over hosts.
#include "collectives/adasum.h"

#include <cmath>
#include <cstring>

#include "conformance/collectives_fixture.h"
#include "support/status_matchers.h"

namespace gyre {
namespace {

using support::IsOk;

float Value(int rank, int64_t index) {
  return static_cast<float>(std::sin(static_cast<double>(index)) + std::cos(static_cast<double>(index * (rank + 2))));
}

std::vector<float> Input(int rank, int64_t count) {
  std::vector<float> values;
  for (int64_t i = 0; i < count; ++i) values.push_back(Value(rank, i));
  return values;
}

// What collectives/adasum_test.cc has proved.
std::vector<float> Expected(int ranks, int64_t count) {
  internal::AdasumWork work(DType::kF32, ranks, count);
  for (int rank = 0; rank < ranks; ++rank) work.Take(rank, 0, Input(rank, count).data(), count, 0.5);
  while (work.Combine()) {
  }
  std::vector<float> result(static_cast<size_t>(count));
  work.Store(result.data(), 3);
  return result;
}

const ReduceOptions kAdasum{.op = ReduceOp::kAdasum, .prescale = 0.5, .postscale = 3};

TEST_P(Conformance, AdasumIsTheSameEverywhere) {
  Run([](Runtime& runtime, Communicator& world) {
    for (const int64_t count : {0, 1, 5, 1023, 150'001}) {
      const std::vector<float> expected = Expected(world.size(), count);
      std::vector<float> plain = Input(world.rank(), count), out(static_cast<size_t>(count));
      ASSERT_THAT(world.AllReduce(plain, out, kAdasum), IsOk());
      EXPECT_EQ(out, expected);
      Tensor arena(runtime, Place::kArena, DType::kF32, count);
      arena.Fill([&](const TensorView& view) {
        if (count > 0) std::memcpy(view.data, plain.data(), plain.size() * sizeof(float));
      });
      ASSERT_THAT(world.AllReduceAsync(arena.view(), kAdasum).Wait(), IsOk());
      if (count > 0) {
        EXPECT_EQ(std::memcmp(arena.elements().data, expected.data(), expected.size() * sizeof(float)), 0);
      }
    }
  });
}

}  // namespace
}  // namespace gyre
