#include "base/status.h"

#include <cstring>

#include "absl/strings/str_cat.h"

namespace gyre {

absl::Status Annotate(const absl::Status& status, std::string_view context) {
  if (status.ok()) return status;
  return {status.code(), absl::StrCat(ToAbsl(context), ": ", status.message())};
}

absl::Status ErrnoStatus(std::string_view what, int error_number) {
  // Not absl::ErrnoToStatus: it fills a table of messages that ThreadSanitizer cannot see the guard of.
  char buffer[128];
  const char* text = strerror_r(error_number, buffer, sizeof(buffer));
  return {absl::ErrnoToStatusCode(error_number), absl::StrCat(ToAbsl(what), ": ", text)};
}

}  // namespace gyre
