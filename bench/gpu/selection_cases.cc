// Cases of what chooses a gradient's largest elements: deep gradient compression, and topk, which has no momentum.
#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "compression/accumulate.h"
#include "compression/codec.h"
#include "device/gpu_dgc.h"
#include "gpu/cases.h"
#include "gpu/check.h"
#include "gyre/status_macros.h"

namespace gyre::bench::gpu {

namespace {

enum class Method { kDgc, kTopK, kSampledTopK };

std::string NameOf(Method method) {
  switch (method) {
    case Method::kDgc: return "DGC";
    case Method::kTopK: return "topk";
    case Method::kSampledTopK: break;
  }
  return "topk-sampled";
}

// One tensor's accumulators and gradient.
struct Selection {
  Method method = Method::kDgc;
  float* momentum = nullptr;  // stays null of topk
  float* velocity = nullptr;
  std::byte* gradient = nullptr;
  int64_t count = 0;
  DType dtype = DType::kF32;
  device::GpuDgc* dgc = nullptr;
  device::kernels::DgcStep step = {};
  // Gradients are put together of so many elements of noise at a time, each from one of so many places.
  int64_t piece = 0;
  const std::byte* noise = nullptr;
  int64_t refreshed = 0;

  // Another gradient, in the place of the last: of one that stays the same, accumulators would only grow.
  absl::Status Refresh(Cases& cases);
  absl::StatusOr<int64_t> Rescans(Cases& cases) const;
  absl::Status Check(Cases& cases, const Run& run) const;
};

absl::Status Selection::Refresh(Cases& cases) {
  step.seed = static_cast<uint64_t>(++refreshed);
  const int64_t width = DTypeSize(dtype);
  for (int64_t first = 0; first < count; first += piece) {
    const int64_t place = (refreshed * 40'503 + first / piece * 7919) % piece;
    RETURN_IF_ERROR(cases.gpu().Copy(gradient + first * width, noise + place * width,
                                     std::min(piece, count - first) * width, cases.stream()));
  }
  return absl::OkStatus();
}

absl::StatusOr<int64_t> Selection::Rescans(Cases& cases) const {
  ASSIGN_OR_RETURN(const auto summaries, dgc->Read(cases.stream()));
  return summaries[0].rescans;
}

// What a window's arrays are.
struct WindowArrays {
  std::vector<float> u, v, g;
};

absl::StatusOr<WindowArrays> Read(Cases& cases, const Selection& of, const Window& window) {
  WindowArrays arrays;
  if (of.momentum != nullptr) {
    ASSIGN_OR_RETURN(arrays.u, cases.Get<float>(of.momentum + window.first, window.count));
  }
  ASSIGN_OR_RETURN(arrays.v, cases.Get<float>(of.velocity + window.first, window.count));
  const int64_t width = DTypeSize(of.dtype);
  ASSIGN_OR_RETURN(const auto stored, cases.Get<std::byte>(of.gradient + window.first * width, window.count * width));
  arrays.g = Decode(stored, of.dtype);
  return arrays;
}

// The magnitudes of what was chosen and of what was left, as far as anybody has looked.
struct Border {
  float least_chosen = std::numeric_limits<float>::infinity(), largest_left = 0;
};

// `after` is `before` with the gradient accumulated, but for elements that were chosen, which are 0.
absl::Status Compare(WindowArrays before, const WindowArrays& after, const device::kernels::DgcStep& step,
                     Border& border) {
  compression::Accumulate({.momentum = before.u.empty() ? nullptr : before.u.data(),
                           .velocity = before.v.data(),
                           .gradient = before.g.data(),
                           .factor = step.factor,
                           .scale = step.scale},
                          0, std::ssize(before.v));
  for (size_t i = 0; i < before.v.size(); ++i) {
    const bool chosen = step.select && before.v[i] != 0 && after.v[i] == 0;
    float& bound = chosen ? border.least_chosen : border.largest_left;
    bound = chosen ? std::min(bound, std::abs(before.v[i])) : std::max(bound, std::abs(before.v[i]));
    if (!chosen) continue;
    before.v[i] = 0;
    if (!before.u.empty()) before.u[i] = 0;
  }
  RETURN_IF_ERROR(CheckSame("v", after.v, before.v));
  return CheckSame("u", after.u, before.u);
}

absl::Status Selection::Check(Cases& cases, const Run& run) const {
  std::vector<WindowArrays> before;
  for (const Window& window : WindowsOf(count)) {
    ASSIGN_OR_RETURN(WindowArrays arrays, Read(cases, *this, window));
    before.push_back(std::move(arrays));
  }
  RETURN_IF_ERROR(run());
  Border border;
  for (size_t w = 0; const Window& window : WindowsOf(count)) {
    ASSIGN_OR_RETURN(const WindowArrays after, Read(cases, *this, window));
    RETURN_IF_ERROR(Compare(std::move(before[w++]), after, step, border));
  }
  if (!step.select) return absl::OkStatus();
  if (border.least_chosen < border.largest_left) {
    return absl::DataLossError(
        absl::StrCat("an element of ", border.largest_left, " was left, one of ", border.least_chosen, " chosen"));
  }
  ASSIGN_OR_RETURN(const auto summaries, dgc->Read(cases.stream()));
  const int64_t selected = summaries[0].selected, wanted = compression::KeptCount(step.sparsity, count);
  if (method != Method::kSampledTopK) {
    return CheckSame("how many are chosen", {selected}, std::vector{wanted});
  }
  if (selected >= 1 && selected <= 2 * wanted) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(selected, " elements were chosen where ", wanted, " were wanted"));
}

// Accumulators are read and written, the gradient is read. What is chosen is not counted, nor what is sampled.
absl::Status AddSelection(Cases& cases, int64_t whole, Method method, DType dtype) {
  constexpr int kWarmup = 20;  // steps after which thresholds have settled
  const int64_t count = cases.Scaled(whole);
  const bool momentum = method == Method::kDgc, sampled = method == Method::kSampledTopK;
  Selection selection{.method = method, .count = count, .dtype = dtype, .piece = cases.Scaled(1 << 20)};
  if (momentum) {
    ASSIGN_OR_RETURN(std::byte* const memory, cases.Allocate(count * kFloatBytes));
    selection.momentum = reinterpret_cast<float*>(memory);
  }
  ASSIGN_OR_RETURN(std::byte* const velocity, cases.Allocate(count * kFloatBytes));
  selection.velocity = reinterpret_cast<float*>(velocity);
  ASSIGN_OR_RETURN(selection.gradient, cases.Allocate(count * DTypeSize(dtype)));
  ASSIGN_OR_RETURN(std::byte* const noise, cases.Allocate(2 * selection.piece * DTypeSize(dtype)));
  RETURN_IF_ERROR(cases.FillNormal(noise, 2 * selection.piece, dtype, 1));
  selection.noise = noise;
  const device::GpuDgcTensor tensor{
      .momentum = selection.momentum, .velocity = selection.velocity, .gradient = selection.gradient, .count = count};
  const device::GpuDgcOptions options{.gradients = dtype, .sampled = sampled};
  ASSIGN_OR_RETURN(auto made, device::GpuDgc::Create(cases.gpu(), {&tensor, 1}, options));
  selection.dgc = cases.Keep(std::move(made));
  device::Gpu::Stream const stream = cases.stream();
  for (int i = 0; i < kWarmup; ++i) {
    RETURN_IF_ERROR(selection.Refresh(cases));
    RETURN_IF_ERROR(selection.dgc->Step(selection.step, stream));
  }
  const std::string size = absl::StrCat(std::string(DTypeName(dtype)),
                                        absl::StrFormat(", %.1f M elements", static_cast<double>(whole) * 1e-6));
  const auto add = [&](const std::string& name, bool select) {
    selection.step.select = select;
    const int64_t bytes = count * ((momentum ? 4 : 2) * kFloatBytes + DTypeSize(dtype));
    Selection* const own = cases.Keep(std::make_unique<Selection>(selection));
    Case added{"selections", absl::StrCat(name, size), bytes, [=] { return own->dgc->Step(own->step, stream); },
               [=, &cases](const Run& run) { return own->Check(cases, run); }};
    added.refresh = [=, &cases] { return own->Refresh(cases); };
    if (select) added.rescans = [=, &cases] { return own->Rescans(cases); };
    cases.Add(std::move(added));
  };
  add(absl::StrCat(NameOf(method), " step, 99.9 %, "), true);
  if (dtype == DType::kF32 && !sampled) add(absl::StrCat(NameOf(method), ", only accumulating, "), false);
  return absl::OkStatus();
}

}  // namespace

absl::Status AddSelections(Cases& cases) {
  constexpr int64_t kElements = 25'600'000;
  RETURN_IF_ERROR(AddSelection(cases, kElements, Method::kDgc, DType::kF32));
  RETURN_IF_ERROR(AddSelection(cases, 10 * kElements, Method::kDgc, DType::kF32));
  for (const DType dtype : {DType::kF16, DType::kBF16}) {
    RETURN_IF_ERROR(AddSelection(cases, kElements, Method::kDgc, dtype));
  }
  RETURN_IF_ERROR(AddSelection(cases, kElements, Method::kTopK, DType::kF32));
  return AddSelection(cases, kElements, Method::kSampledTopK, DType::kF32);
}

}  // namespace gyre::bench::gpu
