// GpuSumLists: what the host has found out of sums that ranks have added up by regions, on its way to the GPU: results,
// and what comes back to what is kept. All of it goes there in one copy, as lists of elements.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "device/gpu_codecs.h"
#include "runtime/codec_device.h"
#include "runtime/gpu_codec_device.h"
#include "runtime/sparse_split.h"

namespace gyre::internal {

// Not thread-safe.
class GpuSumLists {
 public:
  // What is kept of a covered gradient, on the GPU.
  struct Kept {
    float* momentum = nullptr;  // null: u does not come back
    float* velocity = nullptr;
    const float* momenta = nullptr;  // what u was where elements were chosen
  };

  explicit GpuSumLists(GpuCodecDevice& device) : device_(device) {}

  void Begin();

  // As SparseEncoder::Place, whose results Send puts in place.
  void Place(const SparseSplit::Results& results);

  // Sends all that was placed since Begin, and what comes back, by way of `parcel`, and queues what puts it in place.
  // `kept`: by covered gradient.
  absl::Status Send(const SparseSplit& split, std::span<const Kept> kept, Parcel& parcel);

 private:
  struct Run {
    float* to;
    int64_t count;
  };

  absl::Status PutAll(const uint32_t* elements, const float* values) const;
  absl::Status TakeBack(const SparseSplit& split, std::span<const Kept> kept, const uint32_t* elements,
                        const float* values, const uint32_t* entries) const;

  GpuCodecDevice& device_;
  std::vector<Run> runs_;  // of results, a gradient each
  std::vector<uint32_t> elements_;
  std::vector<float> values_;
};

}  // namespace gyre::internal
