// Random calls on ranks by a backend, with tensors that are on the GPU in order of the ranks' streams only.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "collectives/gpu/ranks_on_gpus.h"

namespace gyre {

// A time-out that calls keep on a loaded machine too.
inline constexpr std::chrono::milliseconds kShortTimeout{500};

using Backends = std::vector<std::shared_ptr<internal::GpuBackend>>;  // by rank

// Draws calls until one is `taken`, makes it on all ranks, and says what is wrong with its outcome; empty: nothing.
std::string RunRandomCall(RanksOnGpus& ranks, const Backends& backends,
                          const std::function<bool(const internal::Call&)>& taken);

// An allreduce of floats in place: of rank r's, all are r + 1 before.
class Sum {
 public:
  explicit Sum(RanksOnGpus& ranks, int64_t count = 1000);
  ~Sum();  // once the GPU has done what it can
  Sum(const Sum&) = delete;
  Sum& operator=(const Sum&) = delete;

  internal::GpuCall Of(int rank, std::chrono::milliseconds timeout = std::chrono::seconds(5));

  // One operation a rank.
  RanksOnGpus::Operations Make(const Backends& backends, std::chrono::milliseconds timeout = std::chrono::seconds(5));

  // What each rank has, in the order of its stream.
  void ExpectRight();

 private:
  RanksOnGpus& ranks_;
  std::vector<std::vector<float>> values_;
};

}  // namespace gyre
