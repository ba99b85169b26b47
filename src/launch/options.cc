#include "launch/options.h"

#include <algorithm>
#include <cmath>
#include <memory>

#include "CLI/App.hpp"
#include "CLI/Config.hpp"
#include "CLI/Formatter.hpp"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "gyre/version.h"
#include "launch/rank_environment.h"
#include "launch/report.h"

namespace gyre::launch {

namespace {

constexpr char kExample[] = "gyrerun -np 2 PROGRAM";

constexpr char kFooter[] = R"(
Options end at PROGRAM; what follows belongs to it. `--` before PROGRAM is allowed.

Every rank is a process group of its own and gets GYRE_RANK, GYRE_SIZE, GYRE_STORE, GYRE_JOB_ID and GYRE_SECRET_FD
on top of gyrerun's environment. Rank 0 reads gyrerun's standard input unless that is a terminal; the others, and
rank 0 then, read /dev/null.

Output passes line by line and unchanged. A tag reads [RANK]<stdout>: and a time stamp 2026-01-31T12:34:56.789 before
it. --output-dir also keeps each rank's output, untagged, in DIR/rank.N.out and DIR/rank.N.err.

The first rank that fails, by time, is the root cause. The others may end by themselves for --settle seconds (they
learn of the loss from the library); then, or once only stopped ranks are left, gyrerun sends SIGTERM, and after
--grace seconds SIGKILL. Nothing that the ranks have started outlives gyrerun. SIGINT, SIGTERM, SIGHUP and SIGQUIT end
the job likewise, a second SIGINT at once; SIGUSR1 and SIGUSR2 are passed on to the ranks. Signals that gyrerun was
started with as ignored (nohup) stay so.

Exit code: 0 when all ranks exit 0; else that of the rank that failed first, 128 + N if signal N killed it or ended
gyrerun; 64 wrong usage; 69 the job could not be started; 74 output could not be written (141: its reader has gone);
124 --timeout; 126 PROGRAM cannot be executed; 127 PROGRAM was not found.)";

// What is given as text or in other units than Options has.
struct Raw {
  std::string ranks;
  double timeout = 0;
  double settle = 2;
  double grace = 5;
  bool check_build = false;
};

class HelpFormatter final : public CLI::Formatter {
 public:
  HelpFormatter() { column_width(30); }
  std::string make_usage(const CLI::App*, std::string) const override {
    return "\nUsage: gyrerun [OPTIONS] PROGRAM [ARGS...]\n";
  }
};

void Declare(CLI::App& app, Options& options, Raw& raw) {
  app.prefix_command();
  app.set_version_flag("--version", "gyrerun " GYRE_VERSION_STRING);
  app.footer(kFooter + 1);
  app.formatter(std::make_shared<HelpFormatter>());
  app.add_option("-n,--np", raw.ranks, "Number of ranks (required); also -np")->type_name("N");
  app.add_option("-x", options.exports,
                 "Set VAR to VALUE for the ranks; may be given again and again (a bare VAR is "
                 "passed on, as all of the environment is)")
      ->type_name("VAR[=VALUE]")
      ->allow_extra_args(false);
  app.add_flag("--tag-output", options.tag_output, "Begin each line with its rank and stream");
  app.add_flag("--timestamp-output", options.timestamp_output, "Begin each line with the time");
  app.add_option("--output-dir", options.output_dir, "Also write each rank's output to files there")->type_name("DIR");
  app.add_option("--timeout", raw.timeout, "End the job after so long, with exit code 124")->type_name("SECONDS");
  app.add_option("--settle", raw.settle, "How long the others may go on after a rank has failed (2)")
      ->type_name("SECONDS");
  app.add_option("--grace", raw.grace, "From SIGTERM to SIGKILL (5)")->type_name("SECONDS");
  app.add_flag("--verbose", options.verbose, "Say what starts and ends, and when");
  app.add_flag("--dry-run", options.dry_run, "Print what would be started, and start nothing");
  app.add_flag("--check-build", raw.check_build, "Print which optional parts this build has");
}

absl::Status Wrong(std::string_view what, std::string_view next = "gyrerun --help") {
  return absl::InvalidArgumentError(absl::StrCat(ToAbsl(what), "; try: ", ToAbsl(next)));
}

absl::Status CheckSeconds(std::string_view option, double seconds, bool zero_allowed) {
  if (seconds <= 1e9 && (seconds > 0 || (zero_allowed && seconds == 0))) return absl::OkStatus();
  return Wrong(absl::StrCat(ToAbsl(option), " must be a time in seconds, ", zero_allowed ? "0 or more" : "more than 0",
                            ", not ", seconds),
               absl::StrCat(ToAbsl(option), " 60"));
}

std::chrono::milliseconds ToMilliseconds(double seconds) {
  return std::chrono::milliseconds(std::llround(std::ceil(seconds * 1e3)));
}

absl::Status Check(const Options& options) {
  for (const std::string& entry : options.exports) RETURN_IF_ERROR(CheckExport(entry));
  if (options.command.empty()) return Wrong("PROGRAM is missing", kExample);
  return absl::OkStatus();
}

absl::StatusOr<int> ParseRanks(const std::string& text) {
  int ranks = 0;
  if (text.empty()) return Wrong("the number of ranks is missing", kExample);
  if (absl::SimpleAtoi(text, &ranks) && ranks >= 1 && ranks <= kMaxRanks) return ranks;
  return Wrong(absl::StrCat("-np must be a number from 1 to ", kMaxRanks, ", not ", text), kExample);
}

// Both launchers' users write -np, which CLI11 would take for -n with the value "p".
std::vector<std::string> WithLongNp(std::vector<std::string> arguments) {
  for (std::string& argument : arguments) {
    if (argument == "-np") argument = "--np";
  }
  return arguments;
}

// PROGRAM and what follows it, as they were given: the last ones, as many as the parser left.
absl::StatusOr<std::vector<std::string>> Command(const std::vector<std::string>& arguments,
                                                 std::vector<std::string> remaining) {
  std::vector<std::string> command(arguments.end() - static_cast<ptrdiff_t>(remaining.size()), arguments.end());
  for (auto* words : {&remaining, &command}) {
    if (!words->empty() && words->front() == "--") words->erase(words->begin());
  }
  // The parser goes on after an option that it does not know, so this one may be far from the others.
  if (!remaining.empty() && absl::StartsWith(remaining[0], "-")) {
    return Wrong(absl::StrCat("unknown option ", remaining[0]));
  }
  return command;
}

}  // namespace

absl::StatusOr<Options> ParseOptions(const std::vector<std::string>& arguments) {
  Options options;
  Raw raw;
  CLI::App app(
      "gyrerun starts PROGRAM as N ranks on this host, joins them into one job, and stays until all have ended.",
      "gyrerun");
  Declare(app, options, raw);
  try {
    std::vector<std::string> reversed = WithLongNp(arguments);
    std::reverse(reversed.begin(), reversed.end());
    app.parse(std::move(reversed));
  } catch (const CLI::CallForHelp&) {
    options.answer = app.help();
    return options;
  } catch (const CLI::CallForVersion& version) {
    options.answer = absl::StrCat(version.what(), "\n");
    return options;
  } catch (const CLI::Error& error) {
    return Wrong(error.what());
  }
  if (raw.check_build) {
    options.answer = BuildReport();
    return options;
  }
  ASSIGN_OR_RETURN(options.command, Command(arguments, app.remaining()));
  ASSIGN_OR_RETURN(options.ranks, ParseRanks(raw.ranks));
  RETURN_IF_ERROR(Check(options));
  RETURN_IF_ERROR(CheckSeconds("--settle", raw.settle, true));
  RETURN_IF_ERROR(CheckSeconds("--grace", raw.grace, true));
  options.settle = ToMilliseconds(raw.settle);
  options.grace = ToMilliseconds(raw.grace);
  if (app.count("--timeout") > 0) {
    RETURN_IF_ERROR(CheckSeconds("--timeout", raw.timeout, false));
    options.timeout = ToMilliseconds(raw.timeout);
  }
  return options;
}

}  // namespace gyre::launch
