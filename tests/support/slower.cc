#include "support/slower.h"

#include <cstdlib>

#include "absl/strings/numbers.h"

namespace gyre::support {

std::chrono::milliseconds Slower(std::chrono::milliseconds time) {
  const char* const text = std::getenv("GYRE_TEST_SLOWER");
  int times = 1;
  if (text == nullptr || !absl::SimpleAtoi(text, &times) || times < 1 || times > 1000) return time;
  return time * times;
}

}  // namespace gyre::support
