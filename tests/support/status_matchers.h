// Matchers for absl::Status and absl::StatusOr.
//
//   ASSERT_THAT(runtime, IsOk());
//   EXPECT_THAT(work.Wait(), MatchesStatus(absl::StatusCode::kAborted, "rank 2"));
#pragma once

#include <gmock/gmock.h>

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace gyre::support {

inline const absl::Status& StatusOf(const absl::Status& status) {
  return status;
}

template <typename T>
const absl::Status& StatusOf(const absl::StatusOr<T>& result) {
  return result.status();
}

MATCHER(IsOk, "is OK") {
  *result_listener << "which is " << StatusOf(arg).ToString();
  return StatusOf(arg).ok();
}

// The code, and a text that the message must contain ("" for any).
MATCHER_P2(MatchesStatus, code, substring,
           "has code " + absl::StatusCodeToString(code) + " and a message with \"" + std::string(substring) + "\"") {
  const absl::Status& status = StatusOf(arg);
  *result_listener << "which is " << status.ToString();
  return status.code() == code && std::string(status.message()).find(substring) != std::string::npos;
}

}  // namespace gyre::support
