#include "loss_file.h"

#include <cerrno>
#include <charconv>
#include <filesystem>
#include <optional>
#include <string_view>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "gyre/status_macros.h"

namespace char_lm {

namespace {

// The step of a line "step,loss", or nothing if it is no such line.
std::optional<int64_t> StepOf(std::string_view line) {
  int64_t step = 0;
  double loss = 0;
  const char* const end = line.data() + line.size();
  const auto [comma, step_error] = std::from_chars(line.data(), end, step);
  if (step_error != std::errc() || comma == end || *comma != ',') return std::nullopt;
  const auto [rest, loss_error] = std::from_chars(comma + 1, end, loss);
  if (loss_error != std::errc() || rest != end) return std::nullopt;
  return step;
}

// How many bytes of the file hold the steps up to `last_step`. A crash may have left its last line unfinished.
absl::StatusOr<int64_t> BytesUpTo(const std::string& path, int64_t last_step) {
  std::ifstream file(path, std::ios::binary);
  int64_t kept = 0;
  std::string line;
  while (std::getline(file, line) && !file.eof()) {
    const std::optional<int64_t> step = StepOf(line);
    if (!step) return absl::FailedPreconditionError(absl::StrCat(path, " holds something else than losses"));
    if (*step > last_step) break;
    kept += std::ssize(line) + 1;
  }
  return kept;
}

absl::Status Cut(const std::string& path, int64_t last_step) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return absl::OkStatus();  // a pipe, or nothing yet
  ASSIGN_OR_RETURN(const int64_t kept, BytesUpTo(path, last_step));
  std::filesystem::resize_file(path, static_cast<uintmax_t>(kept), error);
  if (error) return absl::ErrnoToStatus(error.value(), absl::StrCat("cannot cut ", path));
  return absl::OkStatus();
}

}  // namespace

absl::Status LossFile::Open(const std::string& path, int64_t last_step) {
  if (last_step > 0) RETURN_IF_ERROR(Cut(path, last_step));
  path_ = path;
  errno = 0;
  file_.open(path, last_step > 0 ? std::ios::app : std::ios::trunc);
  if (!file_) return absl::ErrnoToStatus(errno, absl::StrCat("cannot write ", path));
  return absl::OkStatus();
}

absl::Status LossFile::Add(int64_t step, double loss) {
  if (!file_.is_open()) return absl::OkStatus();
  errno = 0;
  file_ << absl::StrFormat("%d,%.9g\n", step, loss) << std::flush;
  if (!file_) return absl::ErrnoToStatus(errno, absl::StrCat("cannot write ", path_));
  return absl::OkStatus();
}

}  // namespace char_lm
