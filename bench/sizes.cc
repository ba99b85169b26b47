#include "sizes.h"

#include <limits>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace gyre::bench {

absl::StatusOr<int64_t> ParseSize(const std::string& text) {
  std::string digits = text;
  int shift = 0;
  if (!digits.empty()) {
    const char unit = absl::ascii_toupper(static_cast<unsigned char>(digits.back()));
    shift = unit == 'K' ? 10 : unit == 'M' ? 20 : unit == 'G' ? 30 : 0;
    if (shift != 0) digits.pop_back();
  }
  int64_t value = 0;
  if (!absl::SimpleAtoi(digits, &value) || value <= 0 || value > (std::numeric_limits<int64_t>::max() >> shift)) {
    return absl::InvalidArgumentError(absl::StrCat("'", text, "' is not a size such as 8, 64K, 256M or 1G"));
  }
  return value << shift;
}

absl::StatusOr<std::vector<int64_t>> SizeRange(int64_t begin, int64_t end, int factor) {
  if (begin > end) {
    return absl::InvalidArgumentError(absl::StrCat("the smallest size, ", begin, " B, is larger than the largest, ",
                                                   end, " B; try: -b ", end, " -e ", begin));
  }
  std::vector<int64_t> sizes;
  for (int64_t size = begin; size <= end; size *= factor) {
    sizes.push_back(size);
    if (size > std::numeric_limits<int64_t>::max() / factor) break;
  }
  return sizes;
}

}  // namespace gyre::bench
