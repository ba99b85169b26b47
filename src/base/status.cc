#include "base/status.h"

#include "absl/strings/str_cat.h"

namespace gyre {

absl::Status Annotate(const absl::Status& status, std::string_view context) {
  if (status.ok()) return status;
  return {status.code(), absl::StrCat(ToAbsl(context), ": ", status.message())};
}

absl::Status ErrnoStatus(std::string_view what, int error_number) {
  return absl::ErrnoToStatus(error_number, ToAbsl(what));
}

}  // namespace gyre
