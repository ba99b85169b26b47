#include "launch/status_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <ctime>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/read_file.h"
#include "base/status.h"
#include "launch/exit_code.h"
#include "launch/report.h"
#include "launch/whole_file.h"

namespace gyre::launch {

namespace {

using Json = nlohmann::ordered_json;

constexpr std::array<std::pair<Phase, const char*>, kPhases> kNames = {{{Phase::kQueued, "QUEUED"},
                                                                        {Phase::kDeploying, "DEPLOYING"},
                                                                        {Phase::kDownloading, "DOWNLOADING"},
                                                                        {Phase::kProcessing, "PROCESSING"},
                                                                        {Phase::kStoring, "STORING"},
                                                                        {Phase::kHalted, "HALTED"},
                                                                        {Phase::kResumed, "RESUMED"},
                                                                        {Phase::kCompleted, "COMPLETED"},
                                                                        {Phase::kFailed, "FAILED"}}};

constexpr size_t kMostSteps = 1000;                  // of the history: the last ones
constexpr size_t kLargestStatus = size_t{16} << 20;  // bytes

std::optional<Phase> PhaseOf(const std::string& name) {
  for (const auto& [phase, known] : kNames) {
    if (name == known) return phase;
  }
  return std::nullopt;
}

std::string UtcNow() {
  const std::time_t now = std::time(nullptr);
  tm utc{};
  gmtime_r(&now, &utc);
  return absl::StrFormat("%04d-%02d-%02dT%02d:%02d:%02dZ", utc.tm_year + 1900, utc.tm_mon + 1, utc.tm_mday, utc.tm_hour,
                         utc.tm_min, utc.tm_sec);
}

std::string OwnHost() {
  char name[256] = "";
  gethostname(name, sizeof name - 1);
  return name;
}

bool HasTexts(const Json& value, std::initializer_list<const char*> names) {
  return value.is_object() &&
         std::ranges::all_of(names, [&](const char* name) { return value.contains(name) && value[name].is_string(); });
}

// The content of a status file; nothing if the text is none, whole.
std::optional<Json> ParseStatus(const std::string& text) {
  Json status = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  const auto is_integer = [&](const char* name) { return status.contains(name) && status[name].is_number_integer(); };
  if (!HasTexts(status, {"phase", "since", "job", "host"}) || !PhaseOf(status["phase"])) return std::nullopt;
  if (!is_integer("ranks") || !is_integer("hosts") || !is_integer("epoch") || !is_integer("pid")) return std::nullopt;
  for (const char* list : {"history", "said"}) {
    if (!status.contains(list) || !status[list].is_array()) return std::nullopt;
  }
  for (const Json& step : status["history"]) {
    if (!HasTexts(step, {"phase", "time"}) || !PhaseOf(step["phase"])) return std::nullopt;
  }
  const auto is_text = [](const Json& line) { return line.is_string(); };
  if (!std::ranges::all_of(status["said"], is_text)) return std::nullopt;
  return status;
}

// What an earlier job left. A pipe has nothing of that, and reading it would wait for a writer.
std::optional<Json> EarlierStatus(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return std::nullopt;
  return ParseStatus(ReadFile(path, kLargestStatus).value_or(""));
}

std::string Count(int64_t count, const char* what) {
  return absl::StrCat(count, " ", what, count == 1 ? "" : "s");
}

}  // namespace

const char* PhaseName(Phase phase) {
  return std::ranges::find(kNames, phase, &std::pair<Phase, const char*>::first)->second;
}

bool IsLegal(Phase from, Phase to) {
  switch (from) {
    case Phase::kQueued:
    case Phase::kResumed: return to == Phase::kDeploying || to == Phase::kFailed;
    case Phase::kDeploying:
      return to == Phase::kProcessing || to == Phase::kFailed || to == Phase::kHalted || to == Phase::kDeploying ||
             to == Phase::kCompleted;
    case Phase::kProcessing:
      if (to == Phase::kDownloading || to == Phase::kStoring) return true;
      [[fallthrough]];
    case Phase::kDownloading:
    case Phase::kStoring:
      if (from != Phase::kProcessing && to == Phase::kProcessing) return true;
      return to == Phase::kCompleted || to == Phase::kFailed || to == Phase::kHalted || to == Phase::kDeploying;
    case Phase::kHalted: return to == Phase::kResumed;
    case Phase::kCompleted:
    case Phase::kFailed: break;
  }
  return false;
}

Phase EndPhase(int exit_code) {
  if (exit_code == kExitHalted) return Phase::kHalted;
  return exit_code == 0 ? Phase::kCompleted : Phase::kFailed;
}

absl::StatusOr<StatusFile> StatusFile::Open(const std::string& path, const JobFacts& facts) {
  StatusFile file(path, facts);
  const std::optional<Json> before = EarlierStatus(path);
  Phase phase = Phase::kQueued;
  if (before && (*before)["phase"] == PhaseName(Phase::kHalted)) {
    for (const Json& step : (*before)["history"]) file.history_.push_back({*PhaseOf(step["phase"]), step["time"]});
    phase = Phase::kResumed;
  }
  file.history_.push_back({phase, UtcNow()});
  RETURN_IF_ERROR(file.Write());
  return file;
}

absl::Status StatusFile::Enter(Phase phase) {
  if (!IsLegal(history_.back().phase, phase)) {
    return absl::FailedPreconditionError(absl::StrCat("--status-file ", path_, ": no job goes from ",
                                                      PhaseName(history_.back().phase), " to ", PhaseName(phase)));
  }
  if (history_.size() >= kMostSteps) history_.erase(history_.begin());
  history_.push_back({phase, UtcNow()});
  return Write();
}

absl::Status StatusFile::Write() const {
  Json status = {{"phase", PhaseName(history_.back().phase)},
                 {"since", history_.back().time},
                 {"job", facts_.id},
                 {"ranks", facts_.ranks},
                 {"hosts", facts_.hosts},
                 {"epoch", epoch_},
                 {"exit_code", exit_code_},
                 {"host", OwnHost()},
                 {"pid", facts_.pid},
                 {"said", said_},
                 {"history", Json::array()}};
  for (const Step& step : history_)
    status["history"].push_back({{"phase", PhaseName(step.phase)}, {"time", step.time}});
  // What others wrote may be no UTF-8.
  const std::string text = status.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
  return Annotate(WriteWholeFile(path_, text), "--status-file");
}

absl::StatusOr<std::string> DescribeStatusFile(const std::string& path) {
  const absl::StatusOr<std::string> content = ReadFile(path, kLargestStatus);
  if (!content.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("status: ", OneLine(std::string(content.status().message())), "; try: ls -l ", OneLine(path)));
  }
  const std::optional<Json> status = ParseStatus(*content);
  if (!status) {
    return absl::InvalidArgumentError(
        absl::StrCat("status: ", OneLine(path), " is no status file; try: gyrerun --status-file FILE ..."));
  }
  const Json& json = *status;
  const Phase phase = *PhaseOf(json["phase"]);
  std::string text = absl::StrCat(PhaseName(phase), " since ", json["since"].get<std::string>(), ": job ",
                                  json["job"].get<std::string>(), ", ", Count(json["ranks"], "rank"), " on ",
                                  Count(json["hosts"], "host"), ", ", Count(json["epoch"], "restart"), "\n");
  const bool over = phase == Phase::kCompleted || phase == Phase::kFailed || phase == Phase::kHalted;
  const pid_t pid = json["pid"];
  if (!over && json["host"] == OwnHost() && pid > 0 && kill(pid, 0) != 0 && errno == ESRCH) {
    absl::StrAppend(&text, "its gyrerun (pid ", pid, ") is gone and has not said how it ended\n");
  }
  for (const Json& line : json["said"]) absl::StrAppend(&text, OneLine(line.get<std::string>()), "\n");
  for (const Json& step : json["history"]) {
    absl::StrAppend(&text, "  ", step["time"].get<std::string>(), "  ", step["phase"].get<std::string>(), "\n");
  }
  return text;
}

}  // namespace gyre::launch
