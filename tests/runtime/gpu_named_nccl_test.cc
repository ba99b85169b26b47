// Operations by name on tensors that are on GPUs, by NCCL: a fake of it, on one fake GPU that each rank takes for one
// of its own.
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "collectives/gpu/fake_nccl.h"
#include "gmock/gmock.h"
#include "runtime/gpu_named_fixture.h"

namespace gyre {
namespace {

using absl::StatusCode;
using device::FakeGpu;
using support::GpuRank;
using support::HostSizes;
using support::HostValues;
using support::IsOk;
using support::MakeNamed;
using support::MatchesStatus;
using support::Sums;
using support::Values;

// A GPU under another UUID.
class OwnGpu final : public device::Gpu {
 public:
  explicit OwnGpu(std::shared_ptr<FakeGpu> gpu) : gpu_(std::move(gpu)) {}

  std::string uuid() const override {
    std::string uuid(16, 'o');
    const OwnGpu* const self = this;
    std::memcpy(uuid.data(), &self, sizeof self);
    return uuid;
  }
  std::string name() const override { return gpu_->name(); }
  int ordinal() const override { return gpu_->ordinal(); }
  device::GpuSharing& sharing() override { return gpu_->sharing(); }
  absl::StatusOr<void*> Allocate(int64_t bytes) override { return gpu_->Allocate(bytes); }
  void Free(void* memory) override { gpu_->Free(memory); }
  absl::StatusOr<Stream> CreateStream() override { return gpu_->CreateStream(); }
  void DestroyStream(Stream stream) override { gpu_->DestroyStream(stream); }
  absl::Status Synchronize(Stream stream) override { return gpu_->Synchronize(stream); }
  absl::StatusOr<Event> CreateEvent() override { return gpu_->CreateEvent(); }
  void DestroyEvent(Event event) override { gpu_->DestroyEvent(event); }
  absl::Status Record(Event event, Stream stream) override { return gpu_->Record(event, stream); }
  absl::Status Wait(Stream stream, Event event) override { return gpu_->Wait(stream, event); }
  absl::StatusOr<bool> Done(Event event) override { return gpu_->Done(event); }
  absl::Status Pin(void* memory, int64_t bytes) override { return gpu_->Pin(memory, bytes); }
  void Unpin(void* memory) override { gpu_->Unpin(memory); }
  absl::Status Copy(void* to, const void* from, int64_t bytes, Stream stream) override {
    return gpu_->Copy(to, from, bytes, stream);
  }
  absl::Status Zero(void* memory, int64_t bytes, Stream stream) override { return gpu_->Zero(memory, bytes, stream); }
  absl::StatusOr<std::unique_ptr<Table>> Upload(device::PackTable table, Stream used_on) override {
    return gpu_->Upload(std::move(table), used_on);
  }
  absl::Status Pack(const Table& table, void* buffer, double scale, Stream stream) override {
    return gpu_->Pack(table, buffer, scale, stream);
  }
  absl::Status Unpack(const Table& table, const void* buffer, double scale, Stream stream) override {
    return gpu_->Unpack(table, buffer, scale, stream);
  }
  absl::Status Reduce(const device::Reduction& reduction, std::span<const void* const> sources,
                      std::span<void* const> destinations, int64_t count, Stream stream) override {
    return gpu_->Reduce(reduction, sources, destinations, count, stream);
  }
  absl::Status CountNonFinite(ConstTensorView view, uint64_t* found, Stream stream) override {
    return gpu_->CountNonFinite(view, found, stream);
  }
  absl::Status AddSquares(ConstTensorView view, double* parts, Stream stream) override {
    return gpu_->AddSquares(view, parts, stream);
  }
  absl::Status Update(const device::UpdateRule& rule, std::span<const device::kernels::Weights> tensors,
                      Stream stream) override {
    return gpu_->Update(rule, tensors, stream);
  }
  device::GpuCodecs& codecs() override { return gpu_->codecs(); }

 private:
  const std::shared_ptr<FakeGpu> gpu_;
};

void RunByNccl(const HostSizes& hosts, unsigned seed, const std::function<void(GpuRank&)>& body) {
  const auto gpu = std::make_shared<FakeGpu>(seed);
  FakeNccl nccl(*gpu);
  int size = 0;
  for (const int ranks : hosts) size += ranks;
  support::RunThreads(size, [&](const support::Rank& rank) {
    GpuRank one{.rank = rank, .runtime = support::JoinJob(rank, support::JobOptions(rank, hosts)), .gpu = gpu.get()};
    ASSERT_NE(one.runtime, nullptr);
    internal::Gpus& gpus = internal::Gpus::Of(one.world());
    gpus.OpenBy([&gpu](int) { return std::make_shared<OwnGpu>(gpu); }, &nccl);
    gpus.StageBy(support::kSmallSlots);
    one.stream = *gpu->CreateStream();
    body(one);
    gpu->DestroyStream(one.stream);
  });
  EXPECT_EQ(nccl.made, size);
  EXPECT_GT(nccl.launches, 0);
}

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
    values.Compare({rank.stream});
  };
  RunByNccl({2}, 1, body);
  RunByNccl({1, 1}, 2, body);
}

}  // namespace
}  // namespace gyre
