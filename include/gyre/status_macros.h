// The two propagation macros. gyre.h does not include this header: take it where you want it.
//
//   RETURN_IF_ERROR(expression)             returns the absl::Status from the calling function unless it is OK
//   ASSIGN_OR_RETURN(variable, expression)  unwraps an absl::StatusOr, or returns its status
#pragma once

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#define GYRE_STATUS_CONCAT_(a, b) a##b
#define GYRE_STATUS_NAME_(prefix, line) GYRE_STATUS_CONCAT_(prefix, line)

#ifndef RETURN_IF_ERROR
#define RETURN_IF_ERROR(expression)                                                \
  do {                                                                             \
    if (absl::Status gyre_status_ = (expression); !gyre_status_.ok()) [[unlikely]] \
      return gyre_status_;                                                         \
  } while (false)
#endif

#ifndef ASSIGN_OR_RETURN
#define GYRE_ASSIGN_OR_RETURN_(temporary, variable, expression) \
  auto temporary = (expression);                                \
  if (!temporary.ok()) [[unlikely]]                             \
    return std::move(temporary).status();                       \
  variable = *std::move(temporary)
#define ASSIGN_OR_RETURN(variable, expression) \
  GYRE_ASSIGN_OR_RETURN_(GYRE_STATUS_NAME_(gyre_status_or_, __LINE__), variable, expression)
#endif
