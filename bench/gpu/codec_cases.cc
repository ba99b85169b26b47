// Cases of dense payloads: 64 million elements each.
#include "absl/strings/str_cat.h"
#include "compression/quantize.h"
#include "device/gpu_codecs.h"
#include "gpu/cases.h"
#include "gpu/check.h"
#include "gyre/status_macros.h"

namespace gyre::bench::gpu {

namespace {

using device::Quantizer;

constexpr uint64_t kSeed = 1;
constexpr float kScale = 1e-3f;  // of what is added up: sums stay small

// Where a window's elements, which begin a block, begin in the payload.
std::byte* PartOf(std::byte* payload, Quantizer kind, const Window& window) {
  return payload + device::QuantizedBytes(kind, window.first);
}

// The arrays that all quantisers work on.
struct Codec {
  Cases& cases;
  int64_t count;
  float *gradient, *kept;
  std::byte* payload;

  absl::Status Quantize(Quantizer kind) const {
    return cases.gpu().codecs().Quantize(kind, gradient, kept, count, kSeed, payload, cases.stream());
  }
  absl::Status AddUp(Quantizer kind) const {
    return cases.gpu().codecs().DequantizeAdd(kind, payload, count, kScale, kept, cases.stream());
  }

  absl::Status CheckQuantize(Quantizer kind, const Run& run) const;
  absl::Status CheckAddUp(Quantizer kind, const Run& run) const;
};

std::vector<float> Kept(const Window& window) {
  std::vector<float> kept = Noise(window.count, 5);
  for (float& value : kept) value *= 0.01f;
  return kept;
}

// The host's payload of noise and `kept`; what is kept of these.
std::vector<std::byte> Quantized(Quantizer kind, const Window& window, std::vector<float>& kept) {
  const std::vector<float> gradient = Noise(window.count, 6);
  std::vector<std::byte> made(static_cast<size_t>(device::QuantizedBytes(kind, window.count)));
  compression::Quantize(static_cast<compression::PayloadKind>(kind), gradient.data(), kept.data(), window.count,
                        kSeed + static_cast<uint64_t>(window.first), made.data());
  return made;
}

absl::Status Codec::CheckQuantize(Quantizer kind, const Run& run) const {
  RETURN_IF_ERROR(cases.Zero(payload, device::QuantizedBytes(kind, count)));
  for (const Window& window : WindowsOf(count)) {
    RETURN_IF_ERROR(cases.Put(gradient + window.first, Noise(window.count, 6)));
    RETURN_IF_ERROR(cases.Put(kept + window.first, Kept(window)));
  }
  RETURN_IF_ERROR(run());
  for (const Window& window : WindowsOf(count)) {
    std::vector<float> left = Kept(window);
    const std::vector<std::byte> expected = Quantized(kind, window, left);
    ASSIGN_OR_RETURN(const auto got, cases.Get<std::byte>(PartOf(payload, kind, window), std::ssize(expected)));
    RETURN_IF_ERROR(CheckSame("the payload", got, expected));
    ASSIGN_OR_RETURN(const auto kept_there, cases.Get<float>(kept + window.first, window.count));
    RETURN_IF_ERROR(CheckSame("what is kept", kept_there, left));
  }
  return absl::OkStatus();
}

absl::Status Codec::CheckAddUp(Quantizer kind, const Run& run) const {
  std::vector<std::vector<float>> expected;
  for (const Window& window : WindowsOf(count)) {
    std::vector<float> left = Kept(window);
    const std::vector<std::byte> made = Quantized(kind, window, left);
    expected.push_back(Kept(window));
    RETURN_IF_ERROR(cases.Put(kept + window.first, expected.back()));
    compression::DequantizeAdd(static_cast<compression::PayloadKind>(kind), made.data(), window.count, kScale,
                               expected.back().data());
    RETURN_IF_ERROR(cases.Put(PartOf(payload, kind, window), made));
  }
  RETURN_IF_ERROR(run());
  for (size_t w = 0; const Window& window : WindowsOf(count)) {
    ASSIGN_OR_RETURN(const auto got, cases.Get<float>(kept + window.first, window.count));
    RETURN_IF_ERROR(CheckSame("the sum", got, expected[w++]));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status AddQuantizers(Cases& cases) {
  constexpr const char* kNames[device::kQuantizers] = {"f32",  "f16",  "bf16", "fp8",    "fp8-e5m2",
                                                       "int8", "int4", "sign", "ternary"};
  const int64_t count = cases.Scaled(64 << 20);
  ASSIGN_OR_RETURN(std::byte* const gradient, cases.Allocate(count * kFloatBytes));
  ASSIGN_OR_RETURN(std::byte* const kept, cases.Allocate(count * kFloatBytes));
  ASSIGN_OR_RETURN(std::byte* const payload, cases.Allocate(count * kFloatBytes));
  RETURN_IF_ERROR(cases.FillNormal(gradient, count, DType::kF32, 2));
  const Codec codec{cases, count, reinterpret_cast<float*>(gradient), reinterpret_cast<float*>(kept), payload};
  for (int number = 0; number < device::kQuantizers; ++number) {
    const auto kind = static_cast<Quantizer>(number);
    const int64_t bytes = device::QuantizedBytes(kind, count);
    // Gradient and remainders are read, remainders and payload written; sums are read and written.
    cases.Add({"quantisers", absl::StrCat("quantise to ", kNames[number], ", keeping what is lost"),
               3 * count * kFloatBytes + bytes, [=] { return codec.Quantize(kind); },
               [=](const Run& run) { return codec.CheckQuantize(kind, run); }});
    cases.Add({"quantisers", absl::StrCat("add up from ", kNames[number]), 2 * count * kFloatBytes + bytes,
               [=] { return codec.AddUp(kind); }, [=](const Run& run) { return codec.CheckAddUp(kind, run); }});
  }
  return absl::OkStatus();
}

}  // namespace gyre::bench::gpu
