#include "gpu/cases.h"

#include "absl/strings/str_cat.h"
#include "gyre/status_macros.h"
#include "models/model.h"

namespace gyre::bench::gpu {

namespace {

constexpr int64_t kBytes = 256 << 20;  // of a buffer: several times what the largest cache holds

std::string Name(DType dtype) {
  return std::string(DTypeName(dtype));
}

}  // namespace

absl::StatusOr<void*> Cases::Allocate(int64_t bytes) {
  ASSIGN_OR_RETURN(Memory made, Memory::Make(bytes));
  RETURN_IF_ERROR(Check(cudaMemset(made.data(), 0, static_cast<size_t>(bytes)), "clearing memory"));
  memory_.push_back(std::move(made));
  return memory_.back().data();
}

absl::Status AddPacking(Cases& cases) {
  ASSIGN_OR_RETURN(const Model model, MakeModel("resnet50"));
  std::vector<device::Segment> segments;
  int64_t first = 0;
  for (const Parameter& parameter : model.parameters) {
    ASSIGN_OR_RETURN(void* const data, cases.Allocate(parameter.count() * DTypeSize(DType::kF32)));
    segments.push_back({.data = data, .count = parameter.count(), .first = first, .dtype = DType::kF32});
    first += (parameter.count() + 63) / 64 * 64;
  }
  device::Gpu& gpu = cases.gpu();
  cudaStream_t const stream = cases.stream();
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    ASSIGN_OR_RETURN(device::PackTable table, device::MakePackTable(segments, dtype));
    ASSIGN_OR_RETURN(void* const buffer, cases.Allocate(first * DTypeSize(dtype)));
    ASSIGN_OR_RETURN(auto uploaded, gpu.Upload(std::move(table), stream));
    const device::Gpu::Table* const on_gpu = cases.Keep(std::move(uploaded));
    const int64_t bytes = model.count() * (DTypeSize(DType::kF32) + DTypeSize(dtype));
    const std::string tensors = absl::StrCat(segments.size(), " tensors, f32 ");
    cases.Add({absl::StrCat("pack ", tensors, "to ", Name(dtype)), bytes,
               [=, &gpu] { return gpu.Pack(*on_gpu, buffer, 1, stream); }});
    cases.Add({absl::StrCat("unpack ", tensors, "from ", Name(dtype)), bytes,
               [=, &gpu] { return gpu.Unpack(*on_gpu, buffer, 1, stream); }});
    cases.Add({absl::StrCat("pack ", tensors, "to ", Name(dtype), ", scaled"), bytes,
               [=, &gpu] { return gpu.Pack(*on_gpu, buffer, 0.5, stream); }});
  }
  return absl::OkStatus();
}

absl::Status AddReductions(Cases& cases) {
  constexpr int kMost = 4;
  std::vector<void*> buffers;
  for (int i = 0; i <= kMost; ++i) {
    ASSIGN_OR_RETURN(void* const buffer, cases.Allocate(kBytes));
    buffers.push_back(buffer);
  }
  struct Form {
    int sources, destinations;
  };
  device::Gpu& gpu = cases.gpu();
  cudaStream_t const stream = cases.stream();
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16, DType::kF64, DType::kU8}) {
    for (const Form form : {Form{2, 1}, Form{4, 1}, Form{2, 2}, Form{4, 4}}) {
      const bool to_one = form.destinations == 1;
      const std::vector<const void*> sources(buffers.begin(), buffers.begin() + form.sources);
      const std::vector<void*> results(to_one ? buffers.end() - 1 : buffers.begin(),
                                       to_one ? buffers.end() : buffers.begin() + form.destinations);
      const int64_t count = kBytes / DTypeSize(dtype);
      cases.Add({absl::StrCat("reduce ", form.sources, " to ", form.destinations, ", ", Name(dtype)),
                 kBytes * (form.sources + form.destinations),
                 [=, &gpu] { return gpu.Reduce({.dtype = dtype}, sources, results, count, stream); }});
    }
  }
  return absl::OkStatus();
}

absl::Status AddFiniteChecks(Cases& cases) {
  ASSIGN_OR_RETURN(void* const values, cases.Allocate(kBytes));
  ASSIGN_OR_RETURN(void* const found, cases.Allocate(sizeof(uint64_t)));
  device::Gpu& gpu = cases.gpu();
  cudaStream_t const stream = cases.stream();
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const ConstTensorView view(values, kBytes / DTypeSize(dtype), dtype);
    cases.Add({absl::StrCat("finite check, ", Name(dtype)), kBytes,
               [=, &gpu] { return gpu.CountNonFinite(view, static_cast<uint64_t*>(found), stream); }});
  }
  return absl::OkStatus();
}

}  // namespace gyre::bench::gpu
