// Cases of kernels on whole buffers: packing, reductions, and what only reads.
#include <cmath>
#include <limits>
#include <numeric>
#include <span>

#include "absl/strings/str_cat.h"
#include "device/reduce.h"
#include "gpu/cases.h"
#include "gpu/check.h"
#include "gyre/status_macros.h"
#include "models/model.h"

namespace gyre::bench::gpu {

namespace {

std::string Name(DType dtype) {
  return std::string(DTypeName(dtype));
}

// One table, by which a buffer of `dtype` is packed from segments in float32, or unpacked to them.
struct Packing {
  const device::Gpu::Table* table;
  std::byte* buffer;
  DType dtype;
  double scale;
  bool unpacks;

  absl::Status Run(const Cases& cases) const {
    if (unpacks) return cases.gpu().Unpack(*table, buffer, scale, cases.stream());
    return cases.gpu().Pack(*table, buffer, scale, cases.stream());
  }

  // Of each segment the first elements. `scale` is a power of two.
  absl::Status Check(Cases& cases, const gpu::Run& run) const {
    constexpr int64_t kLooked = 1024;
    const auto each = [&](const auto& body) -> absl::Status {
      uint64_t seed = 0;
      for (const device::Segment& segment : table->host().segments) {
        std::vector<float> values = Noise(std::min(segment.count, kLooked), ++seed);
        std::vector<std::byte> stored = Encode(values, dtype);
        if (unpacks) values = Decode(stored, dtype);
        for (float& value : values) value *= static_cast<float>(unpacks ? scale : 1 / scale);
        RETURN_IF_ERROR(body(segment, values, stored, buffer + segment.first * DTypeSize(dtype)));
      }
      return absl::OkStatus();
    };
    RETURN_IF_ERROR(each([&](const auto& segment, const auto& values, const auto& stored, std::byte* at) {
      absl::Status put = unpacks ? cases.Put(at, stored) : cases.Put(segment.data, values);
      const auto looked = static_cast<int64_t>(values.size());
      put.Update(unpacks ? cases.Zero(segment.data, looked * DTypeSize(DType::kF32))
                         : cases.Zero(at, looked * DTypeSize(dtype)));
      return put;
    }));
    RETURN_IF_ERROR(run());
    return each([&](const auto& segment, const auto& values, const auto& stored, std::byte* at) -> absl::Status {
      if (unpacks) {
        ASSIGN_OR_RETURN(const auto got, cases.Get<float>(segment.data, std::ssize(values)));
        return CheckSame("a tensor", got, values);
      }
      ASSIGN_OR_RETURN(const auto got, cases.Get<std::byte>(at, std::ssize(stored)));
      return CheckSame("the buffer", got, stored);
    });
  }
};

// The sums at each window, of elements that differ by source and window.
absl::Status CheckReduction(Cases& cases, DType dtype, std::span<void* const> sources, std::span<void* const> results,
                            int64_t count, const Run& run) {
  const int64_t width = DTypeSize(dtype);
  const auto elements = [&](const Window& window) {
    std::vector<std::vector<std::byte>> made;
    for (size_t s = 0; s < sources.size(); ++s) {
      made.push_back(Encode(Noise(window.count, static_cast<uint64_t>(window.first) + s + 1), dtype));
    }
    return made;
  };
  const auto at = [width](void* buffer, const Window& window) {
    return static_cast<std::byte*>(buffer) + window.first * width;
  };
  for (const Window& window : WindowsOf(count)) {
    for (void* const result : results) RETURN_IF_ERROR(cases.Zero(at(result, window), window.count * width));
    const auto made = elements(window);
    for (size_t s = 0; s < sources.size(); ++s) RETURN_IF_ERROR(cases.Put(at(sources[s], window), made[s]));
  }
  RETURN_IF_ERROR(run());
  for (const Window& window : WindowsOf(count)) {
    const auto made = elements(window);
    std::vector<const void*> from;
    for (const auto& source : made) from.push_back(source.data());
    std::vector<std::byte> expected(made[0].size());
    void* const to = expected.data();
    device::Reduce({.dtype = dtype}, from, {&to, 1}, window.count);
    for (void* const result : results) {
      ASSIGN_OR_RETURN(const auto got, cases.Get<std::byte>(at(result, window), std::ssize(expected)));
      RETURN_IF_ERROR(CheckSame("a result", got, expected));
    }
  }
  return absl::OkStatus();
}

// Zeros with `values` at each window.
absl::Status Sprinkle(Cases& cases, std::byte* buffer, DType dtype, int64_t count, std::span<const float> values) {
  RETURN_IF_ERROR(cases.Zero(buffer, count * DTypeSize(dtype)));
  for (const Window& window : WindowsOf(count)) {
    RETURN_IF_ERROR(cases.Put(buffer + window.first * DTypeSize(dtype),
                              Encode(values.first(static_cast<size_t>(window.count)), dtype)));
  }
  return absl::OkStatus();
}

absl::Status AddFiniteCheck(Cases& cases, DType dtype) {
  ASSIGN_OR_RETURN(std::byte* const values, cases.Buffer(0));
  ASSIGN_OR_RETURN(std::byte* const found, cases.Allocate(sizeof(uint64_t)));
  const ConstTensorView view(values, cases.buffer_bytes() / DTypeSize(dtype), dtype);
  const auto run = [&cases, view, found] {
    return cases.gpu().CountNonFinite(view, reinterpret_cast<uint64_t*>(found), cases.stream());
  };
  const auto check = [&cases, view, values, found](const Run& count) -> absl::Status {
    constexpr float kInfinity = std::numeric_limits<float>::infinity();
    std::vector<float> given(1 << 16, -0.5f);
    uint64_t expected = 0;
    for (size_t i = 0; i < given.size(); i += 7) given[i] = i % 2 == 0 ? kInfinity : std::nanf("");
    for (const Window& window : WindowsOf(view.count)) expected += static_cast<uint64_t>(window.count + 6) / 7;
    RETURN_IF_ERROR(Sprinkle(cases, values, view.dtype, view.count, given));
    RETURN_IF_ERROR(cases.Zero(found, sizeof(uint64_t)));
    RETURN_IF_ERROR(count());
    ASSIGN_OR_RETURN(const auto got, cases.Get<uint64_t>(found, 1));
    return CheckSame("how many are not finite", got, {expected});
  };
  cases.Add({"scans", absl::StrCat("finite check, ", Name(dtype)), cases.buffer_bytes(), run, check});
  return absl::OkStatus();
}

// Of whole numbers: their squares' sum is exact in any order.
absl::Status AddSquares(Cases& cases, DType dtype) {
  constexpr int64_t kParts = device::Gpu::kSquareParts;
  ASSIGN_OR_RETURN(std::byte* const values, cases.Buffer(0));
  ASSIGN_OR_RETURN(std::byte* const parts, cases.Allocate(kParts * static_cast<int64_t>(sizeof(double))));
  const ConstTensorView view(values, cases.buffer_bytes() / DTypeSize(dtype), dtype);
  const auto run = [&cases, view, parts] {
    return cases.gpu().AddSquares(view, reinterpret_cast<double*>(parts), nullptr, cases.stream());
  };
  const auto check = [&cases, view, values, parts](const Run& add) -> absl::Status {
    std::vector<float> given(1 << 16);
    double expected = 0;
    for (size_t i = 0; i < given.size(); ++i) given[i] = static_cast<float>(static_cast<int>(i % 37) - 18);
    for (const Window& window : WindowsOf(view.count)) {
      for (const float value : std::span(given).first(static_cast<size_t>(window.count))) expected += value * value;
    }
    RETURN_IF_ERROR(Sprinkle(cases, values, view.dtype, view.count, given));
    RETURN_IF_ERROR(cases.Zero(parts, kParts * static_cast<int64_t>(sizeof(double))));
    RETURN_IF_ERROR(add());
    ASSIGN_OR_RETURN(const auto got, cases.Get<double>(parts, kParts));
    return CheckSame("the sum of squares", {std::accumulate(got.begin(), got.end(), 0.0)}, std::vector{expected});
  };
  cases.Add({"scans", absl::StrCat("squares, ", Name(dtype)), cases.buffer_bytes(), run, check});
  return absl::OkStatus();
}

}  // namespace

absl::Status AddPacking(Cases& cases) {
  ASSIGN_OR_RETURN(const Model model, MakeModel("resnet50"));
  std::vector<device::Segment> segments;
  int64_t first = 0, elements = 0;
  for (const Parameter& parameter : model.parameters) {
    const int64_t count = cases.Scaled(parameter.count());
    ASSIGN_OR_RETURN(void* const data, cases.Allocate(count * DTypeSize(DType::kF32)));
    segments.push_back({.data = data, .count = count, .first = first, .dtype = DType::kF32});
    first += (count + 63) / 64 * 64;
    elements += count;
  }
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    ASSIGN_OR_RETURN(device::PackTable table, device::MakePackTable(segments, dtype));
    ASSIGN_OR_RETURN(std::byte* const buffer, cases.Allocate(first * DTypeSize(dtype)));
    ASSIGN_OR_RETURN(auto uploaded, cases.gpu().Upload(std::move(table), cases.stream()));
    const device::Gpu::Table* const on_gpu = cases.Keep(std::move(uploaded));
    const int64_t bytes = elements * (DTypeSize(DType::kF32) + DTypeSize(dtype));
    const std::string tensors = absl::StrCat(segments.size(), " tensors, f32 ");
    const auto add = [&](const std::string& name, double scale, bool unpacks) {
      const Packing packing{on_gpu, buffer, dtype, scale, unpacks};
      cases.Add({"packing", name, bytes, [=, &cases] { return packing.Run(cases); },
                 [=, &cases](const Run& run) { return packing.Check(cases, run); }});
    };
    add(absl::StrCat("pack ", tensors, "to ", Name(dtype)), 1, false);
    add(absl::StrCat("unpack ", tensors, "from ", Name(dtype)), 1, true);
    add(absl::StrCat("pack ", tensors, "to ", Name(dtype), ", scaled"), 0.5, false);
  }
  return absl::OkStatus();
}

absl::Status AddReductions(Cases& cases) {
  constexpr int kMost = 4;
  std::vector<void*> buffers;
  for (int i = 0; i <= kMost; ++i) {
    ASSIGN_OR_RETURN(void* const buffer, cases.Buffer(static_cast<size_t>(i)));
    buffers.push_back(buffer);
  }
  struct Form {
    int sources, destinations;
  };
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16, DType::kF64, DType::kU8}) {
    for (const Form form : {Form{2, 1}, Form{4, 1}, Form{2, 2}, Form{4, 4}}) {
      const bool to_one = form.destinations == 1;
      const std::vector<void*> sources(buffers.begin(), buffers.begin() + form.sources);
      const std::vector<const void*> read(sources.begin(), sources.end());
      const std::vector<void*> results(to_one ? buffers.end() - 1 : buffers.begin(),
                                       to_one ? buffers.end() : buffers.begin() + form.destinations);
      const int64_t count = cases.buffer_bytes() / DTypeSize(dtype);
      cases.Add({"reductions", absl::StrCat("reduce ", form.sources, " to ", form.destinations, ", ", Name(dtype)),
                 cases.buffer_bytes() * (form.sources + form.destinations),
                 [=, &cases] { return cases.gpu().Reduce({.dtype = dtype}, read, results, count, cases.stream()); },
                 [=, &cases](const Run& run) { return CheckReduction(cases, dtype, sources, results, count, run); }});
    }
  }
  return absl::OkStatus();
}

absl::Status AddScans(Cases& cases) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) RETURN_IF_ERROR(AddFiniteCheck(cases, dtype));
  for (const DType dtype : {DType::kF32, DType::kBF16}) RETURN_IF_ERROR(AddSquares(cases, dtype));
  return absl::OkStatus();
}

}  // namespace gyre::bench::gpu
