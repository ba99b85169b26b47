#include "launch/host_sources.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <thread>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "base/read_file.h"
#include "base/status.h"
#include "launch/now.h"
#include "launch/report.h"
#include "launch/script.h"

namespace gyre::launch {

namespace {

constexpr char kMpiJobHostfile[] = "/etc/mpi/hostfile";
constexpr char kSageMakerFile[] = "/opt/ml/input/config/resourceconfig.json";
constexpr size_t kLargestSource = size_t{1} << 20;  // bytes
constexpr Duration kBetweenScripts = std::chrono::seconds(1);

absl::Status WrongSource(std::string_view where, std::string_view what, std::string_view next) {
  return absl::InvalidArgumentError(absl::StrCat(ToAbsl(where), ": ", ToAbsl(what), "; try: ", ToAbsl(next)));
}

absl::Status WrongSlurm(std::string_view variable, std::string_view part) {
  return WrongSource(variable, absl::StrCat("\"", OneLine(part), "\" is not understood"), "-H with the hosts");
}

bool IsDigit(char c) {
  return absl::ascii_isdigit(static_cast<unsigned char>(c));
}

// "001-003" and "7" of "n[001-003,7]".
absl::Status AddRange(std::string_view prefix, std::string_view range, std::string_view suffix,
                      std::vector<std::string>& names) {
  const size_t dash = range.find('-');
  const std::string_view first = range.substr(0, dash);
  const std::string_view last = dash == std::string_view::npos ? first : range.substr(dash + 1);
  int from = 0;
  int to = 0;
  const bool numbers = std::ranges::all_of(first, IsDigit) && std::ranges::all_of(last, IsDigit) &&
                       absl::SimpleAtoi(ToAbsl(first), &from) && absl::SimpleAtoi(ToAbsl(last), &to);
  if (!numbers || to < from || to - from >= kMaxHosts) return WrongSlurm("SLURM_JOB_NODELIST", range);
  for (int number = from; number <= to; ++number) {
    const std::string digits = absl::StrCat(number);
    const std::string zeros(std::max(first.size(), digits.size()) - digits.size(), '0');
    names.push_back(absl::StrCat(ToAbsl(prefix), zeros, digits, ToAbsl(suffix)));
  }
  return absl::OkStatus();
}

// Commas within brackets do not part.
std::vector<std::string_view> Parts(std::string_view text) {
  std::vector<std::string_view> parts;
  size_t begin = 0;
  int depth = 0;
  for (size_t i = 0; i <= text.size(); ++i) {
    if (i < text.size() && text[i] == '[') ++depth;
    if (i < text.size() && text[i] == ']') --depth;
    if (i < text.size() && (text[i] != ',' || depth > 0)) continue;
    parts.push_back(text.substr(begin, i - begin));
    begin = i + 1;
  }
  return parts;
}

absl::StatusOr<std::vector<std::string>> SlurmNames(std::string_view nodes) {
  std::vector<std::string> names;
  for (const std::string_view part : Parts(nodes)) {
    const size_t open = part.find('[');
    const size_t close = part.find(']');
    if (open == std::string_view::npos) {
      names.emplace_back(part);
      continue;
    }
    if (close == std::string_view::npos || close < open || part.find('[', open + 1) != std::string_view::npos) {
      return WrongSlurm("SLURM_JOB_NODELIST", part);
    }
    const std::vector<std::string> ranges = absl::StrSplit(ToAbsl(part.substr(open + 1, close - open - 1)), ',');
    for (const std::string& range : ranges) {
      RETURN_IF_ERROR(AddRange(part.substr(0, open), range, part.substr(close + 1), names));
    }
    if (names.size() > kMaxHosts) return WrongSlurm("SLURM_JOB_NODELIST", part);
  }
  return names;
}

// "2(x3),1" is 2, 2, 2, 1.
absl::StatusOr<std::vector<int>> SlurmTasks(std::string_view tasks) {
  std::vector<int> slots;
  const std::vector<std::string> parts = absl::StrSplit(ToAbsl(tasks), ',');
  for (const std::string& part : parts) {
    const size_t times = part.find("(x");
    int count = 0;
    int repeat = 1;
    bool understood = absl::SimpleAtoi(part.substr(0, times), &count);
    if (times != std::string::npos) {
      understood = understood && part.back() == ')' &&
                   absl::SimpleAtoi(part.substr(times + 2, part.size() - times - 3), &repeat);
    }
    if (!understood || count < 1 || repeat < 1 || repeat > kMaxHosts) return WrongSlurm("SLURM_TASKS_PER_NODE", part);
    slots.insert(slots.end(), static_cast<size_t>(repeat), count);
  }
  return slots;
}

absl::StatusOr<std::vector<HostSlots>> Discover(const Options& options, TimePoint deadline) {
  std::string last;
  while (true) {
    const absl::StatusOr<std::string> output = RunScript(options.discovery_script, deadline);
    if (output.ok()) {
      ASSIGN_OR_RETURN(std::vector<HostSlots> hosts, ParseDiscoveredHosts(*output, options.slots_per_host));
      int slots = 0;
      for (const HostSlots& host : hosts) slots += host.slots;
      const int wanted = std::max(1, options.least_ranks > 0 ? options.least_ranks : options.ranks);
      if (slots >= wanted) return hosts;
      last = absl::StrCat("it named ", hosts.size(), " hosts with ", slots, " slots, and ",
                          options.least_ranks > 0 ? "--min-np" : "-np", " asks for ", wanted);
    } else {
      last = std::string(output.status().message());
    }
    if (Now() + kBetweenScripts >= deadline) break;
    std::this_thread::sleep_for(kBetweenScripts);
  }
  return absl::UnavailableError(absl::StrCat("--host-discovery-script: ", last, "; the job was not started; try: ",
                                             options.discovery_script, ", or a longer --start-timeout"));
}

absl::StatusOr<std::vector<HostSlots>> FromSlurm(const Environment& environment) {
  const auto nodes = environment("SLURM_JOB_NODELIST");
  if (!nodes) return WrongSource("--hosts-from slurm", "SLURM_JOB_NODELIST is not set", "salloc or sbatch");
  return ParseSlurmHosts(*nodes, environment("SLURM_TASKS_PER_NODE").value_or(""));
}

absl::StatusOr<std::vector<HostSlots>> FromSageMaker(const Options& options) {
  const absl::StatusOr<std::string> text = ReadFile(kSageMakerFile, kLargestSource);
  if (!text.ok()) return WrongSource(kSageMakerFile, "cannot be read", absl::StrCat("ls -l ", kSageMakerFile));
  return ParseSageMakerHosts(*text, options.slots_per_host);
}

// Whether a line (not empty, without its comment) says how many slots its host has: "host:N", "[v6]:N" or slots=N; more
// colons make an IPv6 address.
bool GivesSlots(absl::string_view line) {
  const std::vector<absl::string_view> words = absl::StrSplit(line, absl::ByAnyChar(" \t\v\f\r"), absl::SkipEmpty());
  const absl::string_view host = words[0];
  const bool after_name =
      absl::StartsWith(host, "[") ? absl::StrContains(host, "]:") : std::count(host.begin(), host.end(), ':') == 1;
  return after_name ||
         std::ranges::any_of(words, [](absl::string_view word) { return absl::StartsWith(word, "slots="); });
}

}  // namespace

bool NaturallyBefore(std::string_view a, std::string_view b) {
  size_t i = 0;
  size_t j = 0;
  while (i < a.size() && j < b.size()) {
    if (!IsDigit(a[i]) || !IsDigit(b[j])) {
      if (a[i] != b[j]) return a[i] < b[j];
      ++i;
      ++j;
      continue;
    }
    const auto number = [](std::string_view text, size_t& at) {
      const size_t begin = std::min(text.find_first_not_of('0', at), text.size());
      size_t end = begin;
      while (end < text.size() && IsDigit(text[end])) ++end;
      at = end;
      return text.substr(begin, end - begin);
    };
    const std::string_view x = number(a, i);
    const std::string_view y = number(b, j);
    if (x.size() != y.size()) return x.size() < y.size();
    if (x != y) return x < y;
  }
  if (i == a.size() && j == b.size()) return a < b;  // 7 and 07
  return i == a.size();
}

absl::StatusOr<std::vector<HostSlots>> ParseSlurmHosts(std::string_view nodes, std::string_view tasks) {
  ASSIGN_OR_RETURN(const std::vector<std::string> names, SlurmNames(nodes));
  std::vector<int> slots(names.size(), 1);
  if (!tasks.empty()) {
    ASSIGN_OR_RETURN(slots, SlurmTasks(tasks));
  }
  if (slots.size() != names.size()) {
    return WrongSource("SLURM_TASKS_PER_NODE",
                       absl::StrCat("tells of ", slots.size(), " nodes, and SLURM_JOB_NODELIST of ", names.size()),
                       "-H with the hosts");
  }
  std::vector<std::string> lines;
  for (size_t i = 0; i < names.size(); ++i) lines.push_back(absl::StrCat(names[i], " slots=", slots[i]));
  return ParseHostfile(absl::StrJoin(lines, "\n"), "of SLURM_JOB_NODELIST");
}

absl::StatusOr<std::vector<HostSlots>> ParseSageMakerHosts(std::string_view json, int slots) {
  const nlohmann::json content = nlohmann::json::parse(json, nullptr, /*allow_exceptions=*/false);
  const bool object = content.is_object() && content.contains("hosts") && content["hosts"].is_array();
  const auto is_text = [](const nlohmann::json& entry) { return entry.is_string(); };
  if (!object || content["hosts"].empty() || !std::ranges::all_of(content["hosts"], is_text)) {
    return WrongSource(kSageMakerFile, "has no list of names under \"hosts\"", "-H with the hosts");
  }
  auto names = content["hosts"].get<std::vector<std::string>>();
  std::ranges::sort(names, NaturallyBefore);
  if (content.contains("current_host") && content["current_host"].is_string()) {
    // This one's agent serves the store, which must be where gyrerun can say its address.
    const auto current = std::ranges::find(names, content["current_host"].get<std::string>());
    if (current != names.end()) std::rotate(names.begin(), current, current + 1);
  }
  for (std::string& name : names) absl::StrAppend(&name, " slots=", slots);
  return ParseHostfile(absl::StrJoin(names, "\n"), kSageMakerFile);
}

absl::StatusOr<std::vector<HostSlots>> ParseDiscoveredHosts(std::string_view text, int slots) {
  std::vector<std::string> lines;
  for (const auto line : absl::StrSplit(ToAbsl(WithoutByteOrderMark(text)), '\n')) {
    const absl::string_view host = absl::StripAsciiWhitespace(line.substr(0, line.find('#')));
    if (host.empty()) continue;
    lines.push_back(GivesSlots(host) ? std::string(host) : absl::StrCat(host, " slots=", slots));
  }
  if (lines.empty()) return std::vector<HostSlots>();
  std::ranges::sort(lines, NaturallyBefore);
  return ParseHostfile(absl::StrJoin(lines, "\n"), "of --host-discovery-script");
}

absl::StatusOr<std::vector<HostSlots>> FindHosts(const Options& options, const Environment& environment,
                                                 TimePoint deadline) {
  if (!options.host_list.empty()) return ParseHostList(options.host_list);
  if (!options.hostfile.empty()) return ReadHostfile(options.hostfile);
  if (!options.discovery_script.empty()) return Discover(options, deadline);
  const std::string& from = options.hosts_from;
  const auto wanted = [&](std::string_view source, bool there) { return from == source || (from == "auto" && there); };
  std::error_code error;
  if (wanted("mpijob", std::filesystem::exists(kMpiJobHostfile, error))) return ReadHostfile(kMpiJobHostfile);
  if (wanted("slurm", environment("SLURM_JOB_NODELIST").has_value())) return FromSlurm(environment);
  if (wanted("sagemaker", std::filesystem::exists(kSageMakerFile, error))) return FromSageMaker(options);
  return std::vector<HostSlots>();
}

}  // namespace gyre::launch
