// Logging to standard error, one logger a runtime (no process-wide registry).
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "gyre/options.h"

namespace spdlog {
class logger;
}

namespace gyre {

// Writes lines "gyre 12:34:56.789 warning rank 3: text". Copies write to the same place; one that is made of nothing
// writes nothing. Thread-safe. spdlog stays behind log.cc: its templates took longer to compile than what logs.
class Logger {
 public:
  Logger() = default;

  void Debug(std::string_view text) const;
  void Info(std::string_view text) const;
  void Warn(std::string_view text) const;
  void Error(std::string_view text) const;

 private:
  friend Logger MakeLogger(LogLevel level, const std::string& who);

  std::shared_ptr<spdlog::logger> logger_;
};

Logger MakeLogger(LogLevel level, const std::string& who);

}  // namespace gyre
