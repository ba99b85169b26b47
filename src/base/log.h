// Logging to standard error, one logger a runtime (no process-wide registry).
#pragma once

#include <memory>
#include <string>

#include "gyre/options.h"
#include "spdlog/logger.h"

namespace gyre {

using Logger = std::shared_ptr<spdlog::logger>;

// Lines read "gyre 12:34:56.789 warning rank 3: text". Thread-safe.
Logger MakeLogger(LogLevel level, const std::string& who);

}  // namespace gyre
