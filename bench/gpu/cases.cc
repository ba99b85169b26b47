#include "gpu/cases.h"

#include "absl/strings/str_cat.h"
#include "gpu/check.h"
#include "gyre/status_macros.h"
#include "noise.h"

namespace gyre::bench::gpu {

Cases::~Cases() {
  (void)gpu_.Synchronize(stream_);  // what failed has been said
  for (void* const memory : memory_) gpu_.Free(memory);
}

absl::StatusOr<std::byte*> Cases::Allocate(int64_t bytes) {
  ASSIGN_OR_RETURN(void* const made, gpu_.Allocate(bytes));
  memory_.push_back(made);
  RETURN_IF_ERROR(Zero(made, bytes));
  return static_cast<std::byte*>(made);
}

absl::StatusOr<std::byte*> Cases::Buffer(size_t number) {
  while (buffers_.size() <= number) {
    ASSIGN_OR_RETURN(std::byte* const made, Allocate(buffer_bytes()));
    buffers_.push_back(made);
  }
  return buffers_[number];
}

absl::Status Cases::FillNormal(void* to, int64_t count, DType dtype, uint64_t seed) {
  constexpr int64_t kDistinct = 1 << 20;
  std::vector<float> values(static_cast<size_t>(std::min(count, kDistinct)));
  bench::FillNormal(values, seed);
  const std::vector<std::byte> elements = Encode(values, dtype);
  for (int64_t done = 0; done < count; done += kDistinct) {
    const int64_t bytes = std::min(count - done, kDistinct) * DTypeSize(dtype);
    RETURN_IF_ERROR(gpu_.Copy(static_cast<std::byte*>(to) + done * DTypeSize(dtype), elements.data(), bytes, stream_));
  }
  return gpu_.Synchronize(stream_);
}

absl::Status Cases::Copy(void* to, const void* from, int64_t bytes) {
  RETURN_IF_ERROR(gpu_.Copy(to, from, bytes, stream_));
  return gpu_.Synchronize(stream_);
}

absl::StatusOr<std::vector<const Case*>> Choose(const Cases& cases, std::string_view only) {
  std::vector<const Case*> chosen;
  for (const Case& each : cases.all()) {
    if (each.name.find(only) != std::string::npos) chosen.push_back(&each);
  }
  if (!chosen.empty()) return chosen;
  return absl::InvalidArgumentError(absl::StrCat("there is no kernel with \"", std::string(only), "\" in its name"));
}

absl::Status AddAll(Cases& cases) {
  for (const auto add :
       {AddPacking, AddReductions, AddScans, AddUpdates, AddQuantizers, AddSelections, AddSparse, AddLowRank}) {
    RETURN_IF_ERROR(add(cases));
  }
  return cases.gpu().Synchronize(cases.stream());
}

}  // namespace gyre::bench::gpu
