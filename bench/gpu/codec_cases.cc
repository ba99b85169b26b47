#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "device/gpu_codecs.h"
#include "device/gpu_dgc.h"
#include "gpu/cases.h"
#include "gyre/status_macros.h"

namespace gyre::bench::gpu {

namespace {

constexpr int64_t kWidth = sizeof(float);

// 20 bytes an element: u and v are read and written, the gradient is read. What is chosen is not counted.
absl::Status AddDgc(Cases& cases, int64_t count) {
  constexpr int kWarmup = 20;  // steps after which thresholds have settled
  void* arrays[3] = {};
  for (void*& array : arrays) {
    ASSIGN_OR_RETURN(array, cases.Allocate(count * kWidth));
  }
  RETURN_IF_ERROR(FillNormal(arrays[2], count, 1));
  const device::GpuDgcTensor tensor{.momentum = static_cast<float*>(arrays[0]),
                                    .velocity = static_cast<float*>(arrays[1]),
                                    .gradient = arrays[2],
                                    .count = count};
  ASSIGN_OR_RETURN(auto made, device::GpuDgc::Create(cases.gpu(), {&tensor, 1}));
  device::GpuDgc* const dgc = cases.Keep(std::move(made));
  cudaStream_t const stream = cases.stream();
  for (int step = 0; step < kWarmup; ++step) RETURN_IF_ERROR(dgc->Step({}, stream));
  const std::string size = absl::StrFormat("%.1f M elements", static_cast<double>(count) * 1e-6);
  cases.Add({absl::StrCat("DGC step, 99.9 %, f32, ", size), 20 * count, [=] { return dgc->Step({}, stream); }});
  cases.Add({absl::StrCat("DGC, only accumulating, ", size), 20 * count,
             [=] { return dgc->Step({.select = false}, stream); }});
  return absl::OkStatus();
}

}  // namespace

absl::Status AddCodecs(Cases& cases) {
  for (const int64_t count : {25'600'000, 256'000'000}) RETURN_IF_ERROR(AddDgc(cases, count));
  constexpr int64_t kCount = 64 << 20;
  ASSIGN_OR_RETURN(void* const gradient, cases.Allocate(kCount * kWidth));
  ASSIGN_OR_RETURN(void* const kept, cases.Allocate(kCount * kWidth));
  ASSIGN_OR_RETURN(void* const payload, cases.Allocate(kCount * kWidth));
  RETURN_IF_ERROR(FillNormal(gradient, kCount, 2));
  device::GpuCodecs& codecs = cases.gpu().codecs();
  cudaStream_t const stream = cases.stream();
  using device::Quantizer;
  for (const auto& [kind, name] : {std::pair(Quantizer::kF16, "f16"), std::pair(Quantizer::kFp8E4M3, "fp8"),
                                   std::pair(Quantizer::kInt8, "int8"), std::pair(Quantizer::kInt4, "int4"),
                                   std::pair(Quantizer::kSign, "sign"), std::pair(Quantizer::kTernary, "ternary")}) {
    const int64_t bytes = device::QuantizedBytes(kind, kCount);
    cases.Add({absl::StrCat("quantise to ", name, ", keeping what is lost"), 3 * kCount * kWidth + bytes,
               [=, kind = kind, &codecs] {
                 return codecs.Quantize(kind, static_cast<const float*>(gradient), static_cast<float*>(kept), kCount, 1,
                                        static_cast<std::byte*>(payload), stream);
               }});
    cases.Add({absl::StrCat("add up from ", name), 2 * kCount * kWidth + bytes, [=, kind = kind, &codecs] {
                 return codecs.DequantizeAdd(kind, static_cast<const std::byte*>(payload), kCount, 0,
                                             static_cast<float*>(kept), stream);
               }});
  }
  return absl::OkStatus();
}

}  // namespace gyre::bench::gpu
