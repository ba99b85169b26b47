// Operations by name on tensors that are on GPUs, which do what is queued late: nothing waits for them but a
// comparison.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "runtime/gpu_fixture.h"

namespace gyre::support {

// What a test has on the host for its GPU to copy from and to.
class HostValues {
 public:
  explicit HostValues(GpuRank& rank) : rank_(rank) {}

  // Writes the tensor, on its stream.
  template <typename T>
  void Put(const TensorView& to, std::vector<T> values) {
    rank_.Put(to, Keep(std::move(values)).data());
  }

  // Queues a copy of what is there now, compared by Compare.
  template <typename T>
  void Expect(const TensorView& from, std::vector<T> values) {
    std::vector<T>& got = Keep(std::vector<T>(values.size()));
    rank_.Get(from, got.data());
    checks_.push_back([&got, values = std::move(values)] { EXPECT_EQ(got, values); });
  }

  void Compare(const std::vector<void*>& streams) {
    for (void* const stream : streams) rank_.Settle(stream);
    for (const auto& check : std::exchange(checks_, {})) check();
  }

 private:
  template <typename T>
  std::vector<T>& Keep(std::vector<T> values) {
    auto kept = std::make_shared<std::vector<T>>(std::move(values));
    kept_.push_back(kept);
    return *kept;
  }

  GpuRank& rank_;
  std::vector<std::shared_ptr<void>> kept_;
  std::vector<std::function<void()>> checks_;
};

inline std::vector<float> Values(int rank, int tensor, int step, int64_t count) {
  std::vector<float> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>(rank + tensor * 3 + step + static_cast<int>(i % 5));
  }
  return values;
}

inline std::vector<float> Sums(int ranks, int tensor, int step, int64_t count) {
  std::vector<float> sums(static_cast<size_t>(count));
  for (int rank = 0; rank < ranks; ++rank) {
    const std::vector<float> values = Values(rank, tensor, step, count);
    for (size_t i = 0; i < sums.size(); ++i) sums[i] += values[i];
  }
  return sums;
}

inline std::unique_ptr<NamedOperations> MakeNamed(GpuRank& rank) {
  auto named = NamedOperations::Create(rank.world());
  EXPECT_THAT(named, IsOk());
  return named.ok() ? *std::move(named) : nullptr;
}

}  // namespace gyre::support
