// The suite for tensors on GPUs: every rank, a thread, has a fake one, whose seed decides when what is done, and goes
// by the host's memory (one rank alone does not). In some worlds the ranks of each host share one: three of one host go
// by IPC, those of several hosts hierarchically. Where there is a GPU, ranks that are processes share that: they go by
// IPC, hierarchically, and, as hosts of one rank each, by the host's memory. Slots are small, so that there are pieces
// enough to be under way at once.
#include <chrono>
#include <cstddef>
#include <cstring>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "conformance/collectives_fixture.h"
#include "device/fake_gpu.h"
#include "device/gpu_under_test.h"
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
  return hosts == HostSizes{3} || hosts == HostSizes{2, 2} || hosts == HostSizes{1, 3};
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
  const int64_t bytes = count * DTypeSize(dtype), all = bytes + 8;
  Device device{.gpu = 0};
  const std::shared_ptr<device::Gpu> gpu = GpuOf(runtime);
  if (place == Place::kArena || place == Place::kUnaligned) device.stream = *gpu->CreateStream();
  stream_ = std::shared_ptr<void>(device.stream, [gpu](void* stream) {
    if (stream != nullptr) gpu->DestroyStream(stream);
  });
  copy_ = [gpu, stream = device.stream](void* to, const void* from, int64_t length) {
    EXPECT_THAT(gpu->Copy(to, from, length, stream), IsOk());
    EXPECT_THAT(gpu->Synchronize(stream), IsOk());
  };
  auto buffer = runtime.Allocate(all, device);
  EXPECT_THAT(buffer, IsOk());
  buffer_ = *std::move(buffer);
  EXPECT_EQ(buffer_.device(), device);
  mirror_ = std::make_unique<std::byte[]>(static_cast<size_t>(all));
  std::memset(mirror_.get(), 0x11, static_cast<size_t>(all));
  copy_(buffer_.data(), mirror_.get(), all);
  view_ = TensorView(buffer_.data() + (place == Place::kUnaligned ? DTypeSize(dtype) : 0), count, dtype, device);
}

Tensor::~Tensor() = default;

TensorView Tensor::view() const {
  return view_;
}

void Tensor::Fill(const std::function<void(const TensorView&)>& write) {
  write(TensorView(mirror_.get(), view_.count, view_.dtype));
  copy_(view_.data, mirror_.get(), view_.bytes());
}

TensorView Tensor::elements() const {
  copy_(mirror_.get(), view_.data, view_.bytes());
  return TensorView(mirror_.get(), view_.count, view_.dtype);
}

double Tensor::at(int64_t index) const {
  return support::ReadElement(elements(), index);
}

int64_t Conformance::LargeBytes() {
  return 30'000;
}

void Conformance::Run(const std::function<void(Runtime&, Communicator&)>& body) {
  const HostSizes& hosts = std::get<1>(GetParam());
  const int size = std::accumulate(hosts.begin(), hosts.end(), 0);
  const auto run = [&](const support::Rank& rank, const internal::Gpus::Open& open) {
    auto runtime = support::JoinJob(rank, support::JobOptions(rank, hosts));
    ASSERT_NE(runtime, nullptr);
    internal::Gpus& gpus = internal::Gpus::Of(runtime->world());
    if (open) gpus.OpenBy(open);
    gpus.StageBy(kSizes);
    body(*runtime, runtime->world());
    EXPECT_THAT(runtime->world().Barrier(), IsOk()) << "the group did not stay in step";
  };
  if (std::get<0>(GetParam()) == Mode::kProcesses) {
    constexpr auto kTimeout = std::chrono::seconds(240);  // compute-sanitizer takes its time
    support::RunProcesses(
        size,
        [&](const support::Rank& rank) {
          const auto gpu = device::OpenGpuUnderTest("cuda");
          if (absl::IsUnavailable(gpu.status())) GTEST_SKIP() << gpu.status().message();
          ASSERT_THAT(gpu, IsOk());
          run(rank, nullptr);
        },
        kTimeout);
    return;
  }
  std::vector<std::shared_ptr<device::FakeGpu>> shared;  // by host
  for (size_t host = 0; host < hosts.size(); ++host) {
    shared.push_back(std::make_shared<device::FakeGpu>(7 + static_cast<unsigned>(host)));
  }
  support::RunThreads(size, [&](const support::Rank& rank) {
    run(rank, [&](int ordinal) -> std::shared_ptr<device::Gpu> {
      if (SharesGpus(hosts)) return shared[HostOf(rank, hosts)];
      return std::make_shared<device::FakeGpu>(7 + rank.rank, ordinal);
    });
  });
}

namespace {

std::string Name(const testing::TestParamInfo<std::tuple<Mode, HostSizes>>& info) {
  std::string name = "Ranks";
  for (const int size : std::get<1>(info.param)) absl::StrAppend(&name, "_", size);
  return name;
}

INSTANTIATE_TEST_SUITE_P(Gpus, Conformance,
                         testing::Combine(testing::Values(Mode::kThreads),
                                          testing::Values(HostSizes{1}, HostSizes{2}, HostSizes{3}, HostSizes{1, 1},
                                                          HostSizes{2, 1}, HostSizes{2, 2}, HostSizes{1, 3})),
                         Name);
INSTANTIATE_TEST_SUITE_P(Cuda, Conformance,
                         testing::Combine(testing::Values(Mode::kProcesses),
                                          testing::Values(HostSizes{1}, HostSizes{2}, HostSizes{3}, HostSizes{1, 1},
                                                          HostSizes{2, 2})),
                         Name);

}  // namespace

}  // namespace gyre
