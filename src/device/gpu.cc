#include "device/gpu.h"

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace gyre::device {

absl::Status CheckScale(const PackTable& table, double scale) {
  if (scale == 1.0 || Convertible(table.buffer_dtype)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("elements of ", ToAbsl(DTypeName(table.buffer_dtype)),
                                                 " are packed as they are, not times ", scale));
}

absl::Status CheckOperands(size_t sources, size_t destinations) {
  const auto good = [](size_t count) { return count > 0 && count <= static_cast<size_t>(Gpu::kMaxOperands); };
  if (good(sources) && good(destinations)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("a reduction on a GPU has 1 to ", Gpu::kMaxOperands,
                                                 " sources and destinations, not ", sources, " and ", destinations));
}

}  // namespace gyre::device
