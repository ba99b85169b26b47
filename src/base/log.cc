#include "base/log.h"

#include "spdlog/sinks/stdout_sinks.h"

namespace gyre {

namespace {

spdlog::level::level_enum ToSpdlog(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug: return spdlog::level::debug;
    case LogLevel::kInfo: return spdlog::level::info;
    case LogLevel::kWarning: return spdlog::level::warn;
    case LogLevel::kError: return spdlog::level::err;
    case LogLevel::kOff: break;
  }
  return spdlog::level::off;
}

}  // namespace

Logger MakeLogger(LogLevel level, const std::string& who) {
  auto logger = std::make_shared<spdlog::logger>(who, std::make_shared<spdlog::sinks::stderr_sink_mt>());
  logger->set_pattern("gyre %H:%M:%S.%e %l %n: %v");
  logger->set_level(ToSpdlog(level));
  logger->flush_on(spdlog::level::debug);
  return logger;
}

}  // namespace gyre
