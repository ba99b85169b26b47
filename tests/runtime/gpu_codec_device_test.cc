// What exchanges ask of a GPU, without other ranks: memory, what is kept, payloads that are damaged.
#include "runtime/gpu_codec_device.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "device/fake_gpu.h"
#include "device/gpu_wait.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/compressed_exchange.h"
#include "runtime/exchange_world.h"
#include "runtime/gpu_codec_speed.h"
#include "runtime/sparse_encoder.h"
#include "support/status_matchers.h"

namespace gyre::internal {
namespace {

using absl::StatusCode;
using support::IsOk;
using support::MatchesStatus;

constexpr int64_t kRows = 40, kCount = kRows * 50, kPlain = 30;
constexpr std::chrono::seconds kTimeout{20};

// A gradient that codecs take, and one that goes along.
ExchangeSettings Settings() {
  return {.tensors = {{.name = "matrix", .shape = {kRows, kCount / kRows}, .count = kCount, .covered = true},
                      {.name = "bias", .shape = {kPlain}, .count = kPlain, .covered = false}}};
}

std::vector<float> ValuesOf(int64_t count, int step) {
  std::vector<float> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i) values[i] = std::sin(static_cast<float>(i * 7 + 1) * (1.3f + step));
  return values;
}

class GpuCodecDeviceTest : public testing::Test {
 protected:
  GpuCodecDeviceTest() {
    stream_ = *gpu_->CreateStream();
    device_ = MakeGpuDevice(opened_, stream_, 3, kTimeout);
  }
  ~GpuCodecDeviceTest() override {
    device_.reset();
    gpu_->DestroyStream(stream_);
  }

  template <typename Check>
  absl::Status Await(const Check& check) {
    for (;;) {
      const auto done = check();
      if (!done.ok() || *done) return done.status();
    }
  }

  // Exchanges the same gradients of all ranks, three times, on the host and on GPUs: results and what is kept are the
  // same, and so many calls are made on GPUs.
  void ExpectTheHosts(const Compression& compression, const ExchangeSettings& settings, int ranks, int calls) {
    std::vector<int> hosts(static_cast<size_t>(ranks));
    std::iota(hosts.begin(), hosts.end(), 0);
    ExchangeWorld on_host(compression, settings, hosts);
    ExchangeWorld on_gpu(compression, settings, hosts, nullptr,
                         [&](int rank) { return MakeGpuDevice(opened_, stream_, rank, kTimeout); });
    for (int step = 1; step <= 3; ++step) {
      for (ExchangeWorld* const world : {&on_host, &on_gpu}) {
        for (int rank = 0; rank < ranks; ++rank) {
          for (const size_t tensor : {0, 1}) {
            const auto values = world->values(rank, tensor);
            std::ranges::copy(ValuesOf(std::ssize(values), step * ranks + rank), values.begin());
          }
        }
        world->BeginStep(step);
        ASSERT_THAT(world->Exchange({0, 1}), IsOk());
        gpu_->Free(nullptr);
      }
      for (int rank = 0; rank < ranks; ++rank) {
        for (const size_t tensor : {0, 1}) {
          EXPECT_TRUE(std::ranges::equal(on_gpu.values(rank, tensor), on_host.values(rank, tensor))) << rank;
        }
        EXPECT_TRUE(StateOf(on_gpu, rank) == StateOf(on_host, rank)) << rank;
      }
      EXPECT_EQ(on_gpu.calls(), calls);
    }
  }

  // Memory of the fake GPU is the host's.
  static std::vector<std::byte> StateOf(ExchangeWorld& world, int rank) {
    return MakeHostDevice()->Save(world.exchange(rank).state()).value();
  }

  // An exchange of one rank: calls are copies.
  absl::Status Run(CompressedExchange& exchange, ExchangePart part) {
    if (absl::Status begun = exchange.Begin(std::move(part)); !begun.ok()) return begun;
    for (;;) {
      if (absl::Status ready = Await([&] { return exchange.Ready(); }); !ready.ok()) return ready;
      const auto call = exchange.Next();
      if (!call.ok()) return call.status();
      if (absl::Status ready = Await([&] { return exchange.Ready(); }); !ready.ok()) return ready;
      if (!call->has_value()) return absl::OkStatus();
      std::memmove((*call)->out.data, (*call)->in.data, static_cast<size_t>((*call)->in.bytes()));
    }
  }

  // Both gradients in memory of the device's, of which `read` makes what the test sees.
  struct Gradients {
    std::span<float> matrix, bias;
    ExchangePart part() const { return {.tensors = {0, 1}, .values = {matrix, bias}}; }
  };
  static Gradients Make(CodecDevice& device) { return {*device.Keep(kCount), *device.Keep(kPlain)}; }
  void Put(const Gradients& gradients, int step) {
    gpu_->Free(nullptr);  // all has been done: on the fake GPU, memory is the host's
    std::ranges::copy(ValuesOf(kCount, step), gradients.matrix.begin());
    std::ranges::copy(ValuesOf(kPlain, step), gradients.bias.begin());
  }
  std::vector<float> Get(std::span<float> values) {
    gpu_->Free(nullptr);
    return {values.begin(), values.end()};
  }

  const std::shared_ptr<device::FakeGpu> gpu_ = std::make_shared<device::FakeGpu>(5);
  const std::shared_ptr<Arena> arena_ = *Arena::Create(64 << 20);
  const OpenedGpu opened_{.gpu = gpu_,
                          .rings = std::make_shared<staged::Rings>(gpu_, arena_, staged::Sizes{}),
                          .memory = gpu_,
                          .nccl_memory = nullptr};
  device::Gpu::Stream stream_ = nullptr;
  std::shared_ptr<CodecDevice> device_;
};

// A part that goes dense takes along what was kept, to the bit as on the host; and from then on nothing is kept but
// what rounding takes away.
TEST_F(GpuCodecDeviceTest, WhatGoesDenseTakesAlongWhatWasKept) {
  for (const Compression& compression :
       {Compression(Int8{}), Compression(Ternary{}), Compression(TopK{.sparsity = 0.9}),
        Compression(RandomK{.sparsity = 0.8}), Compression(PowerSgd{.rank = 3}), Compression(Dgc{.sparsity = 0.9}),
        Compression(Dgc{.sparsity = 0.95, .values = ValueType::kF16}),
        Compression(TopK{.sparsity = 0.9, .values = ValueType::kF16, .global = true}),
        Compression(Dgc{.sparsity = 0.9, .global = true})}) {
    SCOPED_TRACE(std::string(CompressionName(compression)));
    std::vector<std::vector<float>> results[2];
    std::vector<std::byte> saved[2];
    for (const bool on_gpu : {false, true}) {
      const std::shared_ptr<CodecDevice> device = on_gpu ? device_ : MakeHostDevice();
      const Gradients gradients = Make(*device);
      auto exchange = MakeCompressedExchange(compression, Settings(), device);
      ASSERT_THAT(exchange, IsOk());
      for (int step = 1; step <= 5; ++step) {
        Put(gradients, step);
        (*exchange)->BeginStep(step, 0);
        if (step % 2 == 0) {
          ASSERT_THAT((*exchange)->Flush(gradients.part()), IsOk());
        } else {
          ASSERT_THAT(Run(**exchange, gradients.part()), IsOk());
        }
        results[on_gpu].push_back(Get(gradients.matrix));
        results[on_gpu].push_back(Get(gradients.bias));
      }
      saved[on_gpu] = device->Save((*exchange)->state()).value();
    }
    EXPECT_EQ(results[1], results[0]);
    EXPECT_TRUE(saved[1] == saved[0]);
  }
}

// What is not finite counts as nothing, and is counted. The order in which squares are added up is the device's.
TEST_F(GpuCodecDeviceTest, LooksAtGradientsAsTheHostDoes) {
  const Gradients gradients = Make(*device_);
  for (int step = 1; step <= 3; ++step) {
    Put(gradients, step);
    for (int bad = 0; bad < step; ++bad) {
      gradients.bias[static_cast<size_t>(3 * bad)] = bad == 0 ? std::numeric_limits<float>::infinity() : std::nanf("");
    }
    const std::vector<std::span<const float>> both = {gradients.matrix, gradients.bias};
    const auto host = MakeHostDevice();
    ASSERT_THAT(host->Look(both), IsOk());
    const CodecDevice::Facts expected = host->Looked();
    ASSERT_THAT(device_->Look(both), IsOk());
    EXPECT_THAT(device_->Awaited(), testing::HasSubstr("GPU 0 of rank 3 had not looked at all gradients"));
    ASSERT_THAT(Await([&] { return device_->Done(); }), IsOk());
    const CodecDevice::Facts found = device_->Looked();
    EXPECT_EQ(found.non_finite, (std::vector<int64_t>{0, step}));
    EXPECT_EQ(found.non_finite, expected.non_finite);
    EXPECT_GT(expected.squares, 100);
    EXPECT_NEAR(found.squares, expected.squares, 1e-12 * expected.squares);
    EXPECT_THAT(device_->Awaited(), testing::HasSubstr("had not brought compressed gradients"));
  }
}

// Buckets that the model keeps dense cost no memory for choices that nobody makes.
TEST_F(GpuCodecDeviceTest, WhatGoesDenseTakesNoMemoryWithoutMomentum) {
  const Gradients gradients = Make(*device_);
  Put(gradients, 1);
  const auto exchange = *MakeCompressedExchange(TopK{.sparsity = 0.9}, Settings(), device_);
  exchange->BeginStep(1, 0);
  const size_t allocations = gpu_->allocations();
  ASSERT_THAT(exchange->Flush(gradients.part()), IsOk());
  EXPECT_EQ(gpu_->allocations(), allocations);
  EXPECT_EQ(Get(gradients.matrix), ValuesOf(kCount, 1));
}

// On GPUs there are no regions: all ranks add up what all have sent, as so many would on hosts that were told to.
TEST_F(GpuCodecDeviceTest, ManyRanksAddUpAllPayloads) {
  ExchangeSettings settings = Settings();
  settings.most_gathered = std::numeric_limits<int>::max();
  for (const Compression& compression :
       {Compression(Dgc{.sparsity = 0.9, .values = ValueType::kBF16}), Compression(Int4{}),
        Compression(TopK{.sparsity = 0.99}), Compression(RandomK{.sparsity = 0.95}), Compression(PowerSgd{})}) {
    ASSERT_NO_FATAL_FAILURE(ExpectTheHosts(compression, settings, kMostGathered + 2, 2));
  }
}

// But where the choice is global, for which there are five calls.
TEST_F(GpuCodecDeviceTest, SumsOfAGlobalChoiceAreAddedUpByRegions) {
  for (const int ranks : {2, kMostGathered + 2}) {
    for (const Compression& compression :
         {Compression(TopK{.sparsity = 0.95, .global = true}), Compression(Dgc{.sparsity = 0.9, .global = true}),
          Compression(Dgc{.sparsity = 0.95, .nesterov = true, .values = ValueType::kF16, .global = true})}) {
      ASSERT_NO_FATAL_FAILURE(ExpectTheHosts(compression, Settings(), ranks, 5));
    }
  }
}

TEST_F(GpuCodecDeviceTest, NoRoomForSumsEndsTheExchange) {
  const Gradients gradients = Make(*device_);
  Put(gradients, 1);
  const auto exchange = *MakeCompressedExchange(TopK{.sparsity = 0.9, .global = true}, Settings(), device_);
  exchange->BeginStep(1, 0);
  gpu_->FailAllocate(absl::ResourceExhaustedError("none is left"), 2);  // besides what chooses, and what is sent
  EXPECT_THAT(Run(*exchange, gradients.part()),
              MatchesStatus(StatusCode::kResourceExhausted, "bytes of compressed gradients: none is left"));
  gpu_->FailAllocate(absl::OkStatus());
}

TEST_F(GpuCodecDeviceTest, AParcelThatCannotGrowStaysAsItIs) {
  const auto parcel = device_->MakeParcel();
  ASSERT_THAT(parcel->Resize(5000), IsOk());
  std::memset(parcel->here(), 0x5a, 5000);
  ASSERT_THAT(parcel->Send(), IsOk());
  ASSERT_THAT(parcel->Bring(), IsOk());
  ASSERT_THAT(Await([&] { return device_->Done(); }), IsOk());
  std::byte* const there = parcel->there();
  const size_t allocations = gpu_->allocations();
  const auto no_room = MatchesStatus(StatusCode::kResourceExhausted, "GPU 0 of rank 3: no");
  for (const bool pinned : {false, true}) {
    const auto none = absl::ResourceExhaustedError("none is left");
    pinned ? gpu_->FailPin(none) : gpu_->FailAllocate(none);
    EXPECT_THAT(parcel->Resize(1 << 20), no_room);
    gpu_->FailPin(absl::OkStatus());
    gpu_->FailAllocate(absl::OkStatus());
    EXPECT_EQ(parcel->size(), 5000);
    EXPECT_EQ(parcel->there(), there);
    EXPECT_EQ(gpu_->allocations(), allocations);
    std::memset(parcel->here(), 0, 5000);
    ASSERT_THAT(parcel->Bring(), IsOk());
    ASSERT_THAT(Await([&] { return device_->Done(); }), IsOk());
    EXPECT_EQ(parcel->here()[4999], std::byte{0x5a});
  }
  const int64_t before = gpu_->pinned();
  ASSERT_THAT(parcel->Resize(1 << 20), IsOk());
  gpu_->Free(nullptr);
  auto other = opened_.rings->Take(100);  // lets go of what the GPU has done with
  ASSERT_THAT(other, IsOk());
  opened_.rings->Give(*std::move(other), false);
  EXPECT_LE(gpu_->pinned(), before + (1 << 20));
}

// Calls that are staged give their pinned memory back before it has been copied to their tensors.
TEST_F(GpuCodecDeviceTest, AParcelDoesNotWriteToWhatACallHasYetToCopy) {
  constexpr size_t kBytes = 8192;
  std::vector<std::byte> result(kBytes);
  auto ring = *opened_.rings->Take(kBytes);
  const staged::Ring::Slot& slot = ring->slots[0];
  device::Gpu::Stream const back = ring->back;
  gpu_->Hold(back, true);
  std::memset(slot.memory, 0x11, kBytes);
  ASSERT_THAT(gpu_->Copy(result.data(), slot.memory, kBytes, back), IsOk());
  ASSERT_THAT(gpu_->Record(slot.copied_back, back), IsOk());
  opened_.rings->Give(std::move(ring), false);
  const auto parcel = device_->MakeParcel();
  ASSERT_THAT(parcel->Resize(kBytes), IsOk());
  std::memset(parcel->here(), 0x22, kBytes);
  gpu_->Hold(back, false);
  gpu_->Free(nullptr);
  EXPECT_EQ(std::ranges::count(result, std::byte{0x11}), std::ssize(result));
}

TEST_F(GpuCodecDeviceTest, ParcelsUsePinnedMemoryThatIsIdle) {
  opened_.rings->Give(*opened_.rings->Take(8192), false);
  const int64_t pinned = gpu_->pinned();
  const auto parcel = device_->MakeParcel();
  ASSERT_THAT(parcel->Resize(8000), IsOk());
  EXPECT_EQ(gpu_->pinned(), pinned);
}

// As long as a slot of staged calls, whose rings have several.
TEST_F(GpuCodecDeviceTest, AParcelPinsOneSlot) {
  const staged::Sizes& sizes = opened_.rings->sizes();
  const auto parcel = device_->MakeParcel();
  ASSERT_THAT(parcel->Resize(sizes.slot_bytes), IsOk());
  EXPECT_LT(gpu_->pinned(), 2 * sizes.slot_bytes);
}

// As that of a reducer that does not compress.
TEST_F(GpuCodecDeviceTest, TheEndOfADeviceWithoutMemoryWaitsForNothing) {
  gpu_->Stall(true);
  const auto begin = std::chrono::steady_clock::now();
  device_.reset();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, device::kLongestRest / 2);
  gpu_->Stall(false);
}

TEST_F(GpuCodecDeviceTest, DamagedPayloadsAreNamedWithTheirRank) {
  const Gradients gradients = Make(*device_);
  Put(gradients, 1);
  auto encoder = device_->MakeSparseEncoder(TopK{.sparsity = 0.9}, Settings(), HostPieces(std::vector<int>{0}));
  ASSERT_THAT(encoder, IsOk());
  (*encoder)->BeginStep(1, 0);
  SparseEncoding own{.part = gradients.part()};
  ASSERT_THAT((*encoder)->Begin(own), IsOk());
  ASSERT_THAT(Await([&] { return (*encoder)->Ready(); }), IsOk());
  EXPECT_FALSE((*encoder)->EncodeNext(own));
  ASSERT_THAT(own.status, IsOk());
  EXPECT_EQ(own.plain, ValuesOf(kPlain, 1));
  const auto payload = std::span<const std::byte>(own.payloads).subspan(sizeof(SparseEncoding::Length));
  ASSERT_THAT((*encoder)->Add(std::vector<SparseAddend>{{0, 0, gradients.matrix, payload}}), IsOk());
  EXPECT_THAT(Await([&] { return (*encoder)->Ready(); }), IsOk());
  const auto sums = Get(gradients.matrix);
  EXPECT_EQ(std::ranges::count_if(sums, [](float value) { return value != 0; }), kCount / 10);
  for (const size_t bytes : {payload.size() - 1, size_t{3}, size_t{0}}) {
    const std::vector<SparseAddend> both = {{0, 0, gradients.matrix, payload},
                                            {2, 0, gradients.matrix, payload.first(bytes)}};
    ASSERT_THAT((*encoder)->Add(both), IsOk());
    EXPECT_THAT(Await([&] { return (*encoder)->Ready(); }),
                MatchesStatus(StatusCode::kDataLoss, "from rank 2: matrix: sparse payload: damaged"));
  }
}

// Which the processor reads before the GPU has any of them: not even those before it are added.
TEST_F(GpuCodecDeviceTest, DamagedRandomPayloadsAddNothing) {
  const Gradients gradients = Make(*device_);
  Put(gradients, 1);
  auto encoder = *device_->MakeSparseEncoder(RandomK{.sparsity = 0.9}, Settings(), HostPieces(std::vector<int>{0}));
  encoder->BeginStep(1, 0);
  SparseEncoding own{.part = gradients.part()};
  ASSERT_THAT(encoder->Begin(own), IsOk());
  ASSERT_THAT(Await([&] { return encoder->Ready(); }), IsOk());
  EXPECT_FALSE(encoder->EncodeNext(own));
  const auto payload = std::span<const std::byte>(own.payloads).subspan(sizeof(SparseEncoding::Length));
  ASSERT_EQ(payload.size(), 24 + kCount / 10 * sizeof(float));
  const std::vector<float> before = Get(gradients.matrix);
  for (const size_t bytes : {payload.size() - 1, size_t{13}, size_t{0}}) {
    const std::vector<SparseAddend> both = {{0, 0, gradients.matrix, payload},
                                            {2, 0, gradients.matrix, payload.first(bytes)}};
    EXPECT_THAT(encoder->Add(both), MatchesStatus(StatusCode::kDataLoss, "from rank 2: matrix: random payload"));
    EXPECT_EQ(Get(gradients.matrix), before);
  }
  ASSERT_THAT(encoder->Add(std::vector<SparseAddend>{{0, 0, gradients.matrix, payload}}), IsOk());
  const auto sums = Get(gradients.matrix);
  EXPECT_EQ(std::ranges::count_if(sums, [](float value) { return value != 0; }), kCount / 10);
}

TEST_F(GpuCodecDeviceTest, StateOfAnotherKindChangesNothing) {
  const Gradients gradients = Make(*device_);
  auto exchange = *MakeCompressedExchange(Int8{}, Settings(), device_);
  Put(gradients, 1);
  exchange->BeginStep(1, 0);
  ASSERT_THAT(Run(*exchange, gradients.part()), IsOk());
  const std::vector<std::byte> saved = device_->Save(exchange->state()).value();
  const auto other = *MakeCompressedExchange(Dgc{}, Settings(), device_);
  const std::vector<std::byte> others = device_->Save(other->state()).value();
  const std::span<const std::byte> all[] = {others};
  EXPECT_THAT(device_->Restore(all, exchange->state()), MatchesStatus(StatusCode::kInvalidArgument, "arrays"));
  EXPECT_TRUE(device_->Save(exchange->state()).value() == saved);
}

TEST_F(GpuCodecDeviceTest, SpeedIsMeasuredOnceAndCannotFail) {
  const CodecSpeed speed = device_->Speed(Int8{});
  EXPECT_GT(speed.encode, 0);
  EXPECT_LT(speed.encode, 1e-3);
  EXPECT_LT(speed.decode, 1e-3);
  const size_t allocations = gpu_->allocations();
  gpu_->FailAllocate(absl::ResourceExhaustedError("none is left"));
  EXPECT_EQ(device_->Speed(Int8{}).encode, speed.encode);
  EXPECT_EQ(MeasureSpeedOnGpu(opened_, Dgc{}, kTimeout).encode, 1);
  gpu_->FailAllocate(absl::OkStatus());
  EXPECT_EQ(gpu_->allocations(), allocations);
  for (const Compression& compression : {Compression(Dgc{}), Compression(PowerSgd{})}) {
    const CodecSpeed other = MeasureSpeedOnGpu(opened_, compression, kTimeout);
    EXPECT_GT(other.encode, 0);
    EXPECT_LT(other.encode, 1e-3);
    EXPECT_GT(other.decode, 0);
    EXPECT_LT(other.decode, 1e-3);
  }
  EXPECT_EQ(gpu_->allocations(), allocations);
}

}  // namespace
}  // namespace gyre::internal
