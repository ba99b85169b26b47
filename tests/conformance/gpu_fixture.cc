// The suite for tensors on GPUs: every rank, a thread, has a fake one, whose seed decides when what is done, and goes
// by the host's memory (one rank alone does not). In some worlds the ranks of each host share one: three of one host go
// by IPC, those of several hosts hierarchically. Slots are small, so that there are pieces enough to be under way at
// once.
#include <cstring>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "conformance/collectives_fixture.h"
#include "device/fake_gpu.h"
#include "runtime/gpus.h"
#include "support/fill.h"
#include "support/status_matchers.h"

namespace gyre {

using support::HostSizes;
using support::IsOk;
using support::Mode;

namespace {

constexpr internal::staged::Sizes kSizes{.slot_bytes = 4096, .slots = 3};

// Worlds whose hosts have one GPU each.
bool SharesGpus(const HostSizes& hosts) {
  return hosts == HostSizes{3} || hosts == HostSizes{2, 2} || hosts == HostSizes{1, 2, 3};
}

size_t HostOf(int rank, const HostSizes& hosts) {
  size_t host = 0;
  for (; rank >= hosts[host]; ++host) rank -= hosts[host];
  return host;
}

std::shared_ptr<device::Gpu> GpuOf(Runtime& runtime) {
  auto opened = internal::Gpus::Of(runtime.world()).Get(0);
  EXPECT_THAT(opened, IsOk());
  return opened->gpu;
}

}  // namespace

// Some tensors have a stream of their own, others the default one; some are off alignment.
Tensor::Tensor(Runtime& runtime, Place place, DType dtype, int64_t count) {
  const int64_t bytes = count * DTypeSize(dtype);
  Device device{.gpu = 0};
  const std::shared_ptr<device::Gpu> gpu = GpuOf(runtime);
  if (place == Place::kArena || place == Place::kUnaligned) device.stream = *gpu->CreateStream();
  stream_ = std::shared_ptr<void>(device.stream, [gpu](void* stream) {
    if (stream != nullptr) gpu->DestroyStream(stream);
  });
  settle_ = [gpu, stream = device.stream] { EXPECT_THAT(gpu->Synchronize(stream), IsOk()); };
  auto buffer = runtime.Allocate(bytes + 8, device);
  EXPECT_THAT(buffer, IsOk());
  buffer_ = *std::move(buffer);
  EXPECT_EQ(buffer_.device(), device);
  std::memset(buffer_.data(), 0x11, static_cast<size_t>(bytes) + 8);
  view_ = TensorView(buffer_.data() + (place == Place::kUnaligned ? DTypeSize(dtype) : 0), count, dtype, device);
}

Tensor::~Tensor() = default;

TensorView Tensor::view() const {
  settle_();
  return view_;
}

double Tensor::at(int64_t index) const {
  return support::ReadElement(view(), index);
}

int64_t Conformance::LargeBytes() {
  return 30'000;
}

void Conformance::Run(const std::function<void(Runtime&, Communicator&)>& body) {
  const HostSizes& hosts = std::get<1>(GetParam());
  const int size = std::accumulate(hosts.begin(), hosts.end(), 0);
  std::vector<std::shared_ptr<device::FakeGpu>> shared;  // by host
  for (size_t host = 0; host < hosts.size(); ++host) {
    shared.push_back(std::make_shared<device::FakeGpu>(7 + static_cast<unsigned>(host)));
  }
  support::RunRanks(std::get<0>(GetParam()), size, [&](const support::Rank& rank) {
    auto runtime = support::JoinJob(rank, support::JobOptions(rank, hosts));
    ASSERT_NE(runtime, nullptr);
    internal::Gpus& gpus = internal::Gpus::Of(runtime->world());
    gpus.OpenBy([&](int ordinal) -> std::shared_ptr<device::Gpu> {
      if (SharesGpus(hosts)) return shared[HostOf(rank, hosts)];
      return std::make_shared<device::FakeGpu>(7 + rank.rank, ordinal);
    });
    gpus.StageBy(kSizes);
    body(*runtime, runtime->world());
    EXPECT_THAT(runtime->world().Barrier(), IsOk()) << "the group did not stay in step";
  });
}

namespace {

INSTANTIATE_TEST_SUITE_P(Gpus, Conformance,
                         testing::Combine(testing::Values(Mode::kThreads),
                                          testing::Values(HostSizes{1}, HostSizes{2}, HostSizes{3}, HostSizes{1, 1},
                                                          HostSizes{2, 1}, HostSizes{2, 2}, HostSizes{1, 2, 3})),
                         [](const auto& info) {
                           std::string name = "Ranks";
                           for (const int size : std::get<1>(info.param)) absl::StrAppend(&name, "_", size);
                           return name;
                         });

}  // namespace

}  // namespace gyre
