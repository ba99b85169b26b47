#include "base/log.h"

#include "spdlog/logger.h"
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

void Write(const std::shared_ptr<spdlog::logger>& logger, spdlog::level::level_enum level, std::string_view text) {
  if (logger != nullptr) logger->log(level, spdlog::string_view_t(text.data(), text.size()));
}

}  // namespace

void Logger::Debug(std::string_view text) const {
  Write(logger_, spdlog::level::debug, text);
}

void Logger::Info(std::string_view text) const {
  Write(logger_, spdlog::level::info, text);
}

void Logger::Warn(std::string_view text) const {
  Write(logger_, spdlog::level::warn, text);
}

void Logger::Error(std::string_view text) const {
  Write(logger_, spdlog::level::err, text);
}

Logger MakeLogger(LogLevel level, const std::string& who) {
  Logger made;
  made.logger_ = std::make_shared<spdlog::logger>(who, std::make_shared<spdlog::sinks::stderr_sink_mt>());
  made.logger_->set_pattern("gyre %H:%M:%S.%e %l %n: %v");
  made.logger_->set_level(ToSpdlog(level));
  made.logger_->flush_on(spdlog::level::debug);
  return made;
}

}  // namespace gyre
