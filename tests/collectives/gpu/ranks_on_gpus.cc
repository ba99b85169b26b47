#include "collectives/gpu/ranks_on_gpus.h"

#include <algorithm>
#include <utility>

#include "gtest/gtest.h"

namespace gyre {

RanksOnGpus::RanksOnGpus(std::vector<std::shared_ptr<device::FakeGpu>> gpus, uint64_t seed)
    : random_(seed), gpus_(std::move(gpus)) {
  for (const auto& gpu : gpus_) {
    streams_.push_back(*gpu->CreateStream());
    ready_.push_back(*gpu->CreateEvent());
  }
}

RanksOnGpus::~RanksOnGpus() {
  for (int r = 0; r < size(); ++r) {
    gpu(r)->DestroyEvent(ready_[static_cast<size_t>(r)]);
    gpu(r)->DestroyStream(stream(r));
  }
}

internal::GpuCall RanksOnGpus::OnGpu(int rank, internal::Call call) const {
  const device::Gpu::Event ready = ready_[static_cast<size_t>(rank)];
  EXPECT_TRUE(gpu(rank)->Record(ready, stream(rank)).ok());
  call.in.device = call.out.device = {.gpu = 0, .stream = stream(rank)};
  return {.call = call, .gpu = gpu(rank), .input_ready = ready, .output_ready = ready};
}

// True: it has ended.
bool RanksOnGpus::Step(internal::Pollable& operation) {
  if (operation.Poll() == shm::Progress::kDone) return true;
  return operation.Check(std::chrono::steady_clock::now());
}

bool RanksOnGpus::Run(const Operations& operations, std::chrono::milliseconds limit) {
  std::vector<size_t> left;
  for (size_t r = 0; r < operations.size(); ++r) {
    if (operations[r] != nullptr) left.push_back(r);
  }
  const auto end = std::chrono::steady_clock::now() + limit;
  while (!left.empty() && std::chrono::steady_clock::now() < end) {
    std::ranges::shuffle(left, random_);
    std::erase_if(left, [&](size_t r) { return random_() % 4 == 0 ? false : Step(*operations[r]); });
    TurnWatches();
    LetTimePass();
  }
  return left.empty();
}

bool RanksOnGpus::RunWatches(std::chrono::milliseconds limit) {
  const auto end = std::chrono::steady_clock::now() + limit;
  while (!watches_.empty() && std::chrono::steady_clock::now() < end) {
    TurnWatches();
    LetTimePass();
  }
  return watches_.empty();
}

void RanksOnGpus::TurnWatches() {
  std::erase_if(watches_, [](const auto& watch) { return Step(*watch); });
}

void RanksOnGpus::Settle() const {
  for (const auto& gpu : gpus_) gpu->Free(nullptr);  // waits for all work, as CUDA's does
}

}  // namespace gyre
