// The same for the fake GPU, here, and for a real one, where there is one: what kernels compute, compared with the CPU.
#include "device/gpu.h"

#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "device/fake_gpu.h"
#include "device/gpu_under_test.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "support/status_matchers.h"

namespace gyre::device {
namespace {

using support::IsOk;
using support::MatchesStatus;

constexpr DType kDTypes[] = {DType::kU8,  DType::kI8,   DType::kI16, DType::kU16, DType::kI32, DType::kI64,
                             DType::kF16, DType::kBF16, DType::kF32, DType::kF64, DType::kBool};

class GpuTest : public GpuUnderTest {
 protected:
  // Memory on the GPU with these bytes, `offset` bytes behind an aligned place.
  void* Put(const std::vector<char>& bytes, int64_t offset = 0) {
    const auto memory = gpu_->Allocate(static_cast<int64_t>(bytes.size()) + offset);
    EXPECT_TRUE(memory.ok()) << memory.status();
    allocated_.push_back(*memory);
    void* const at = static_cast<char*>(*memory) + offset;
    EXPECT_THAT(gpu_->Copy(at, bytes.data(), static_cast<int64_t>(bytes.size()), nullptr), IsOk());
    EXPECT_THAT(gpu_->Synchronize(nullptr), IsOk());
    return at;
  }

  std::vector<char> Get(const void* from, size_t bytes) {
    std::vector<char> got(bytes);
    EXPECT_THAT(gpu_->Copy(got.data(), from, static_cast<int64_t>(bytes), nullptr), IsOk());
    EXPECT_THAT(gpu_->Synchronize(nullptr), IsOk());
    return got;
  }
};

// `count` elements of ordinary size, each rank's its own.
std::vector<char> Elements(DType dtype, int64_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<char> bytes(static_cast<size_t>(count * DTypeSize(dtype)));
  const auto fill = [&](auto make) {
    for (int64_t i = 0; i < count; ++i) {
      const auto value = make();
      std::memcpy(&bytes[static_cast<size_t>(i) * sizeof value], &value, sizeof value);
    }
  };
  std::normal_distribution<float> normal(0, 3);
  switch (dtype) {
    case DType::kF16: fill([&] { return Float16(normal(random)); }); break;
    case DType::kBF16: fill([&] { return BFloat16(normal(random)); }); break;
    case DType::kF32: fill([&] { return normal(random); }); break;
    case DType::kF64: fill([&] { return static_cast<double>(normal(random)) / 3; }); break;
    case DType::kBool: fill([&] { return random() % 2 == 0; }); break;
    default: fill([&] { return static_cast<char>(random()); }); break;
  }
  if (DTypeSize(dtype) > 1 && dtype != DType::kF16 && dtype != DType::kBF16 && dtype != DType::kF32 &&
      dtype != DType::kF64) {
    for (char& byte : bytes) byte = static_cast<char>(random());
  }
  return bytes;
}

TEST_P(GpuTest, PackAndUnpackAreThoseOfTheFake) {
  FakeGpu fake;
  const std::vector<int64_t> counts = {1, 3, 0, 64, 1023, 100003, 4096};
  for (const DType tensor : kDTypes) {
    for (const DType buffer : kDTypes) {
      if (tensor != buffer && !(Convertible(tensor) && Convertible(buffer))) continue;
      for (const double scale : {1.0, 0.375}) {
        if (scale != 1.0 && !Convertible(buffer)) continue;
        SCOPED_TRACE(std::string(DTypeName(tensor)) + " to " + std::string(DTypeName(buffer)));
        std::vector<std::vector<char>> tensors;
        std::vector<Segment> here, there;
        int64_t first = 0;
        for (size_t t = 0; t < counts.size(); ++t) {
          tensors.push_back(Elements(tensor, counts[t], static_cast<unsigned>(t)));
          first += t % 2 == 0 ? 0 : 5;  // some of the buffer's places are aligned, some not
          here.push_back({.data = tensors[t].data(), .count = counts[t], .first = first, .dtype = tensor});
          there.push_back(here.back());
          there.back().data = Put(tensors[t], t == 5 ? DTypeSize(tensor) : 0);
          first += counts[t];
        }
        const auto table_here = fake.Upload(*MakePackTable(here, buffer, 1 << 12), nullptr);
        const auto table_there = gpu_->Upload(*MakePackTable(there, buffer, 1 << 12), nullptr);
        ASSERT_TRUE(table_there.ok()) << table_there.status();

        std::vector<char> expected(static_cast<size_t>(first * DTypeSize(buffer)), 'g');
        void* const packed = Put(expected);
        ASSERT_THAT(fake.Pack(**table_here, expected.data(), scale, nullptr), IsOk());
        ASSERT_THAT(fake.Synchronize(nullptr), IsOk());
        ASSERT_THAT(gpu_->Pack(**table_there, packed, scale, nullptr), IsOk());
        EXPECT_EQ(Get(packed, expected.size()), expected);

        ASSERT_THAT(fake.Unpack(**table_here, expected.data(), scale, nullptr), IsOk());
        ASSERT_THAT(fake.Synchronize(nullptr), IsOk());
        ASSERT_THAT(gpu_->Unpack(**table_there, packed, scale, nullptr), IsOk());
        for (size_t t = 0; t < tensors.size(); ++t) EXPECT_EQ(Get(there[t].data, tensors[t].size()), tensors[t]);
      }
    }
  }
}

// The fake is what kernels are compared with above, so that it is held to literal values here.
TEST_P(GpuTest, PackedValuesAreTheScaledOnesRoundedOnce) {
  const std::vector<float> values = {1, -2.5f, 65504, 1e-8f, 3.14159f};
  std::vector<char> bytes(values.size() * sizeof(float));
  std::memcpy(bytes.data(), values.data(), bytes.size());
  const auto count = static_cast<int64_t>(values.size());
  const auto stream = gpu_->CreateStream();
  ASSERT_TRUE(stream.ok()) << stream.status();
  for (const DType buffer : {DType::kF16, DType::kBF16}) {
    const Segment segment{.data = Put(bytes), .count = count, .first = 1, .dtype = DType::kF32};
    const auto table = gpu_->Upload(*MakePackTable(std::vector{segment}, buffer), nullptr);
    ASSERT_TRUE(table.ok()) << table.status();
    void* const packed = Put(std::vector<char>(bytes.size(), 0));
    ASSERT_THAT(gpu_->Pack(**table, packed, 0.375, *stream), IsOk());
    ASSERT_THAT(gpu_->Synchronize(*stream), IsOk());
    const std::vector<char> got = Get(packed, bytes.size());
    ASSERT_THAT(gpu_->Unpack(**table, packed, 2, *stream), IsOk());
    ASSERT_THAT(gpu_->Synchronize(*stream), IsOk());
    const std::vector<char> back = Get(segment.data, bytes.size());
    EXPECT_EQ(got[0], 0);
    for (size_t i = 0; i < values.size(); ++i) {
      const float scaled = values[i] * 0.375f;
      const Float16 half(scaled);
      const BFloat16 brain(scaled);
      EXPECT_EQ(std::memcmp(&got[2 * (i + 1)], buffer == DType::kF16 ? &half.bits : &brain.bits, 2), 0) << i;
      float unpacked = 0;
      std::memcpy(&unpacked, &back[4 * i], 4);
      EXPECT_EQ(unpacked, 2 * (buffer == DType::kF16 ? static_cast<float>(half) : static_cast<float>(brain))) << i;
    }
  }
  gpu_->DestroyStream(*stream);
}

TEST_P(GpuTest, AScaleOfWhatIsNotConvertibleIsRefused) {
  int64_t value = 7;
  const auto table = gpu_->Upload(
      *MakePackTable(std::vector{Segment{.data = &value, .count = 1, .dtype = DType::kI64}}, DType::kI64), nullptr);
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_THAT(gpu_->Pack(**table, &value, 0.5, nullptr),
              MatchesStatus(absl::StatusCode::kInvalidArgument, "not times 0.5"));
}

TEST_P(GpuTest, ReduceIsTheCpus) {
  constexpr int64_t kCounts[] = {1, 7, 1024, 30001};
  constexpr ReduceOp kOps[] = {ReduceOp::kSum, ReduceOp::kAverage, ReduceOp::kMin, ReduceOp::kMax, ReduceOp::kProduct};
  for (const DType dtype : kDTypes) {
    for (const ReduceOp op : kOps) {
      if (dtype == DType::kBool && op == ReduceOp::kAverage) continue;
      for (const int ranks : {1, 2, 5}) {
        const int64_t count = kCounts[(static_cast<int>(op) + ranks) % 4];
        const int64_t offset = ranks == 5 ? DTypeSize(dtype) : 0;
        SCOPED_TRACE(std::string(DTypeName(dtype)) + " " + std::string(ReduceOpName(op)) + " of " +
                     std::to_string(ranks));
        std::vector<std::vector<char>> inputs;
        std::vector<const void*> here, there;
        for (int r = 0; r < ranks; ++r) inputs.push_back(Elements(dtype, count, static_cast<unsigned>(r)));
        for (const auto& input : inputs) {
          here.push_back(input.data());
          there.push_back(Put(input, offset));
        }
        std::vector<char> expected(inputs[0].size());
        const Reduction reduction = MakeReduction(dtype, op, ranks == 2 ? 0.5 : 1, 1, ranks);
        void* const out_here[] = {expected.data()};
        Reduce(reduction, here, out_here, count);
        void* const out_there[] = {Put(std::vector<char>(expected.size()), offset),
                                   Put(std::vector<char>(expected.size()))};
        ASSERT_THAT(gpu_->Reduce(reduction, there, out_there, count, nullptr), IsOk());
        EXPECT_EQ(Get(out_there[0], expected.size()), expected);
        EXPECT_EQ(Get(out_there[1], expected.size()), expected);
      }
    }
  }
}

TEST_P(GpuTest, TooManyOperandsAreRefused) {
  float value = 1;
  void* const out[] = {&value};
  const std::vector<const void*> many(Gpu::kMaxOperands + 1, &value);
  EXPECT_THAT(gpu_->Reduce({}, many, out, 1, nullptr),
              MatchesStatus(absl::StatusCode::kInvalidArgument, "not 33 and 1"));
  EXPECT_THAT(gpu_->Reduce({}, {}, out, 1, nullptr), MatchesStatus(absl::StatusCode::kInvalidArgument, ""));
}

TEST_P(GpuTest, NonFiniteElementsAreCounted) {
  for (const DType dtype : {DType::kF16, DType::kBF16, DType::kF32, DType::kF64, DType::kI32}) {
    for (const int64_t offset : {int64_t{0}, DTypeSize(dtype)}) {
      SCOPED_TRACE(std::string(DTypeName(dtype)) + " at " + std::to_string(offset));
      const int64_t count = 70001;
      auto bytes = Elements(dtype, count, 3);
      uint64_t expected = 0;
      const auto plant = [&](int64_t i, double value) {
        const auto store = [&](auto converted) {
          std::memcpy(&bytes[static_cast<size_t>(i) * sizeof converted], &converted, sizeof converted);
        };
        switch (dtype) {
          case DType::kF16: store(Float16(static_cast<float>(value))); break;
          case DType::kBF16: store(BFloat16(static_cast<float>(value))); break;
          case DType::kF32: store(static_cast<float>(value)); break;
          case DType::kF64: store(value); break;
          default: return;
        }
        ++expected;
      };
      plant(0, std::numeric_limits<double>::infinity());
      plant(35000, -std::numeric_limits<double>::infinity());
      plant(count - 1, std::numeric_limits<double>::quiet_NaN());
      const void* const data = Put(bytes, offset);
      auto* const found = static_cast<uint64_t*>(Put(std::vector<char>(sizeof(uint64_t), 0)));
      ASSERT_THAT(gpu_->CountNonFinite({TensorView(const_cast<void*>(data), count, dtype)}, found, nullptr), IsOk());
      uint64_t got = 0;
      std::memcpy(&got, Get(found, sizeof got).data(), sizeof got);
      EXPECT_EQ(got, expected);
    }
  }
}

TEST_P(GpuTest, WorkOfAStreamOfItsOwn) {
  const auto stream = gpu_->CreateStream();
  ASSERT_TRUE(stream.ok()) << stream.status();
  std::vector<float> values(1000);
  std::iota(values.begin(), values.end(), 1.0f);
  std::vector<char> bytes(values.size() * sizeof(float));
  std::memcpy(bytes.data(), values.data(), bytes.size());
  void* const memory = Put(bytes);
  const void* const sources[] = {memory, memory};
  void* const destinations[] = {memory};
  ASSERT_THAT(gpu_->Reduce({}, sources, destinations, 1000, *stream), IsOk());
  std::vector<float> doubled(values.size());
  ASSERT_THAT(gpu_->Copy(doubled.data(), memory, static_cast<int64_t>(bytes.size()), *stream), IsOk());
  ASSERT_THAT(gpu_->Synchronize(*stream), IsOk());
  for (size_t i = 0; i < values.size(); ++i) ASSERT_EQ(doubled[i], 2 * values[i]);
  gpu_->DestroyStream(*stream);
}

TEST_P(GpuTest, SquaresAreSummedUpInOneOrder) {
  for (const DType dtype : {DType::kF16, DType::kBF16, DType::kF32, DType::kF64}) {
    for (const int64_t count : {0, 1, 1000, 300001}) {
      SCOPED_TRACE(std::string(DTypeName(dtype)) + " " + std::to_string(count));
      const auto bytes = Elements(dtype, count, 5);
      const ConstTensorView here(bytes.data(), count, dtype), there(Put(bytes), count, dtype);
      std::vector<char> expected(Gpu::kSquareParts * sizeof(double));
      void* const parts = Put(expected);
      FakeGpu fake;
      for (int i = 0; i < 2; ++i) {
        ASSERT_THAT(fake.AddSquares(here, reinterpret_cast<double*>(expected.data()), nullptr, nullptr), IsOk());
        ASSERT_THAT(gpu_->AddSquares(there, static_cast<double*>(parts), nullptr, nullptr), IsOk());
      }
      ASSERT_THAT(fake.Synchronize(nullptr), IsOk());
      EXPECT_EQ(Get(parts, expected.size()), expected);
      if (dtype != DType::kF32) continue;
      double total = 0, plain = 0;
      for (size_t i = 0; i < expected.size(); i += sizeof(double)) {
        double part = 0;
        std::memcpy(&part, &expected[i], sizeof part);
        total += part;
      }
      for (size_t i = 0; i < bytes.size(); i += sizeof(float)) {
        float value = 0;
        std::memcpy(&value, &bytes[i], sizeof value);
        plain += 2.0 * value * value;
      }
      EXPECT_NEAR(total, plain, 1e-9 * plain);
    }
  }
  int32_t whole = 1;
  EXPECT_THAT(gpu_->AddSquares({TensorView(&whole, 1, DType::kI32)}, nullptr, nullptr, nullptr),
              MatchesStatus(absl::StatusCode::kInvalidArgument, ""));
}

// As if they were 0, and so whatever there is beside them.
TEST_P(GpuTest, SquaresLeaveOutWhatIsCountedAsNotFinite) {
  constexpr int64_t kElements = 200003;
  for (const DType dtype : {DType::kF16, DType::kBF16, DType::kF32, DType::kF64}) {
    SCOPED_TRACE(std::string(DTypeName(dtype)));
    const auto width = static_cast<size_t>(DTypeSize(dtype));
    auto zeros = Elements(dtype, kElements, 7), others = zeros;
    for (const size_t i : {size_t{0}, size_t{77}, size_t{131'072}, size_t{kElements - 1}}) {
      std::memset(&zeros[i * width], 0, width);
      std::memset(&others[i * width], 0xff, width);  // a NaN of any of them
    }
    const std::vector<char> none(Gpu::kSquareParts * sizeof(double));
    auto* const expected = static_cast<double*>(Put(none));
    auto* const parts = static_cast<double*>(Put(none));
    auto* const found = static_cast<uint64_t*>(Put(std::vector<char>(sizeof(uint64_t), 0)));
    const ConstTensorView finite(Put(zeros), kElements, dtype), mixed(Put(others), kElements, dtype);
    ASSERT_THAT(gpu_->AddSquares(finite, expected, nullptr, nullptr), IsOk());
    for (const ConstTensorView& view : {finite, mixed}) {
      ASSERT_THAT(gpu_->Copy(parts, none.data(), std::ssize(none), nullptr), IsOk());
      ASSERT_THAT(gpu_->AddSquares(view, parts, found, nullptr), IsOk());
      EXPECT_EQ(Get(parts, none.size()), Get(expected, none.size()));
    }
    uint64_t got = 0;
    std::memcpy(&got, Get(found, sizeof got).data(), sizeof got);
    EXPECT_EQ(got, 4);
  }
}

TEST_P(GpuTest, EventsOrderStreams) {
  constexpr int kRounds = 20;
  constexpr int64_t kCount = 5000;
  const auto one = gpu_->CreateStream(), other = gpu_->CreateStream();
  const auto ready = gpu_->CreateEvent(), never = gpu_->CreateEvent();
  ASSERT_TRUE(one.ok() && other.ok() && ready.ok() && never.ok());
  EXPECT_NE(*ready, nullptr);
  EXPECT_TRUE(*gpu_->Done(*never));
  ASSERT_THAT(gpu_->Wait(*one, *never), IsOk());
  std::vector<char> ones(kCount * sizeof(int64_t));
  for (size_t i = 0; i < ones.size(); i += sizeof(int64_t)) ones[i] = 1;
  void* const memory = Put(ones);
  const void* const sources[] = {memory, memory};
  void* const destinations[] = {memory};
  const Reduction twice = MakeReduction(DType::kI64, ReduceOp::kSum, 1, 1, 2);
  for (int round = 0; round < kRounds; ++round) {  // streams take turns; one event, recorded again and again
    const auto here = round % 2 == 0 ? *one : *other, there = round % 2 == 0 ? *other : *one;
    ASSERT_THAT(gpu_->Reduce(twice, sources, destinations, kCount, here), IsOk());
    ASSERT_THAT(gpu_->Record(*ready, here), IsOk());
    ASSERT_THAT(gpu_->Wait(there, *ready), IsOk());
  }
  std::vector<int64_t> got(kCount);
  ASSERT_THAT(gpu_->Copy(got.data(), memory, kCount * 8, *one), IsOk());
  ASSERT_THAT(gpu_->Record(*ready, *one), IsOk());
  for (;;) {
    const auto done = gpu_->Done(*ready);
    ASSERT_TRUE(done.ok()) << done.status();
    if (*done) break;
  }
  EXPECT_EQ(got, std::vector<int64_t>(kCount, int64_t{1} << kRounds));
  gpu_->DestroyEvent(*ready);
  gpu_->DestroyEvent(*never);
  gpu_->DestroyStream(*one);
  gpu_->DestroyStream(*other);
}

TEST_P(GpuTest, PinnedMemoryIsCopiedFromAndTo) {
  const int64_t bytes = 64 << 10;
  void* const host = std::aligned_alloc(4096, bytes);
  std::memset(host, 7, bytes);
  ASSERT_THAT(gpu_->Pin(host, bytes), IsOk());
  void* const memory = Put(std::vector<char>(bytes));
  ASSERT_THAT(gpu_->Copy(memory, host, bytes, nullptr), IsOk());
  EXPECT_EQ(Get(memory, bytes), std::vector<char>(bytes, 7));
  gpu_->Unpin(host);
  std::free(host);
}

TEST_P(GpuTest, MemoryIsCleared) {
  void* const memory = Put(std::vector<char>(100, 7));
  ASSERT_THAT(gpu_->Zero(static_cast<char*>(memory) + 1, 98, nullptr), IsOk());
  std::vector<char> expected(100);
  expected[0] = expected[99] = 7;
  EXPECT_EQ(Get(memory, 100), expected);
}

TEST_P(GpuTest, SaysWhichItIs) {
  EXPECT_EQ(gpu_->ordinal(), 0);
  EXPECT_EQ(gpu_->uuid().size(), 16U);
  EXPECT_GT(gpu_->place(), 0);  // where the first bus begins, no GPU is
}

// What the fake is for: whoever does not wait for an event finds, with one seed or another, that it had to.
TEST(FakeGpuTest, WithoutAnEventDataIsWrong) {
  bool wrong = false;
  for (unsigned seed = 0; seed < 20 && !wrong; ++seed) {
    FakeGpu gpu(seed);
    int from = 1, between = 0, to = 0;
    const auto one = *gpu.CreateStream(), other = *gpu.CreateStream();
    ASSERT_THAT(gpu.Copy(&between, &from, sizeof from, one), IsOk());
    ASSERT_THAT(gpu.Copy(&to, &between, sizeof from, other), IsOk());
    ASSERT_THAT(gpu.Synchronize(one), IsOk());
    ASSERT_THAT(gpu.Synchronize(other), IsOk());
    wrong = to == 0;
  }
  EXPECT_TRUE(wrong);
}

TEST(FakeGpuTest, AStalledOneDoesNothing) {
  FakeGpu gpu;
  int from = 1, to = 0;
  const auto event = *gpu.CreateEvent();
  gpu.Stall(true);
  ASSERT_THAT(gpu.Copy(&to, &from, sizeof from, nullptr), IsOk());
  ASSERT_THAT(gpu.Record(event, nullptr), IsOk());
  for (int i = 0; i < 100; ++i) ASSERT_FALSE(*gpu.Done(event));
  gpu.Stall(false);
  ASSERT_THAT(gpu.Synchronize(nullptr), IsOk());
  EXPECT_TRUE(*gpu.Done(event));
  EXPECT_EQ(to, 1);
}

INSTANTIATE_TEST_SUITE_P(Gpus, GpuTest, ::testing::Values("fake", "cuda"), [](const auto& info) { return info.param; });

}  // namespace
}  // namespace gyre::device
