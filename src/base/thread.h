// Starting threads without exceptions.
#pragma once

#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/status/statusor.h"
#include "base/status.h"

namespace gyre {

// kResourceExhausted, naming `what` the thread is for, where the system has no room for one more.
template <typename Function>
absl::StatusOr<std::thread> StartThread(std::string_view what, Function&& function) {
  try {
    return std::thread(std::forward<Function>(function));
  } catch (const std::system_error& error) {
    return Annotate(absl::ResourceExhaustedError(error.what()), what);
  }
}

}  // namespace gyre
