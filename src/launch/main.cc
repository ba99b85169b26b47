// gyrerun: starts a program as N ranks of one job, on this host or others. `gyrerun --help` is its manual.
#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/environment.h"
#include "launch/agent.h"
#include "launch/exit_code.h"
#include "launch/guard.h"
#include "launch/host_sources.h"
#include "launch/hosts.h"
#include "launch/last_catch.h"
#include "launch/manifest.h"
#include "launch/now.h"
#include "launch/options.h"
#include "launch/program.h"
#include "launch/recommend.h"
#include "launch/report.h"
#include "launch/restarts.h"
#include "launch/server_ranks.h"
#include "launch/stacks.h"
#include "launch/status_file.h"
#include "launch/timeline.h"

namespace gyre::launch {

namespace {

int Fail(absl::string_view message, int code) {
  std::fputs(absl::StrCat("gyrerun: ", message, "\n").c_str(), stderr);
  return code;
}

int Print(const std::string& text) {
  const bool written = std::fputs(text.c_str(), stdout) >= 0 && std::fflush(stdout) == 0;
  return written ? 0 : kExitOutput;
}

// Descriptors 0 to 2 that were closed would be taken by whatever is opened next.
void FillStandardDescriptors() {
  while (true) {
    const int fd = open("/dev/null", O_RDWR);
    if (fd > 2) close(fd);
    if (fd > 2 || fd < 0) return;
  }
}

absl::Status MakeOutputDir(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (!error && access(path.c_str(), W_OK | X_OK) != 0) error.assign(errno, std::generic_category());
  if (!error) return absl::OkStatus();
  return absl::PermissionDeniedError(
      absl::StrCat("--output-dir ", path, ": ", error.message(), "; try: a folder that you may write to"));
}

// This very program: where it is expected on other hosts, too.
std::string OwnPath() {
  std::error_code error;
  const std::filesystem::path path = std::filesystem::read_symlink("/proc/self/exe", error);
  return error ? "gyrerun" : path.string();
}

std::optional<int> PrepareOutputDir(const Options& options) {
  if (options.output_dir.empty()) return std::nullopt;
  const absl::Status made = MakeOutputDir(options.output_dir);
  if (made.ok()) return std::nullopt;
  return Fail(made.message(), kExitOutput);
}

// Runs the job of so many ranks, then joins their timelines if asked for. An earlier timeline stays until there is
// another one to take its place.
template <typename Job>
int RunTraced(const Options& options, int ranks, const Job& job) {
  if (options.timeline.empty() || options.preflight_only) return job();
  if (const absl::Status writable = CheckTimeline(options.timeline); !writable.ok()) {
    return Fail(writable.message(), kExitOutput);
  }
  ClearTimelineParts(options.timeline, ranks);
  const int code = job();
  const absl::StatusOr<std::vector<int>> missing = MergeTimeline(options.timeline, ranks);
  if (!missing.ok()) {
    return Fail(absl::StrCat("--timeline ", missing.status().message()), code != 0 ? code : kExitOutput);
  }
  const bool none = std::ssize(*missing) == ranks;
  if (missing->empty() || (none && code == kExitNotStarted)) return code;
  return Fail(
      absl::StrCat("--timeline: there is none here of ", missing->size(), " of ", ranks, " ranks, the first being ",
                   missing->front(), none ? "; nothing was written" : "", "; try: a folder that all hosts share"),
      code);
}

int RunHere(const Options& options) {
  const char* path = std::getenv("PATH");
  const absl::StatusOr<std::string> program =
      FindProgram(options.command[0], path != nullptr ? path : "/usr/local/bin:/usr/bin:/bin");
  if (!program.ok()) return Fail(program.status().message(), ExitCodeOf(program.status()));
  if (options.dry_run) return Print(DryRunReport(options, *program));
  if (const std::optional<int> code = PrepareOutputDir(options)) return *code;
  return RunTraced(options, options.ranks, [&] {
    return RunGuarded(options.grace, -1, [&](int guard) { return RunJob({options, *program, {}, guard}); });
  });
}

int RunOnHosts(Options options) {
  const TimePoint deadline = DeadlineAfter(Now(), options.start_timeout);
  const auto hosts = FindHosts(options, ProcessEnvironment(), deadline);
  if (absl::IsUnavailable(hosts.status())) return Fail(hosts.status().message(), kExitNotStarted);
  if (!hosts.ok()) return Fail(hosts.status().message(), options.host_list.empty() ? kExitHostfile : kExitUsage);
  if (hosts->empty() && options.ranks == 0) {
    return Fail("--hosts-from auto finds no hosts, and the number of ranks is missing; try: -np 2", kExitUsage);
  }
  if (hosts->empty() && !options.server_hosts.empty()) {
    return Fail("--hosts-from auto finds no hosts, and --server-hosts is for ranks on hosts; try: -H a:2,b:2",
                kExitUsage);
  }
  if (hosts->empty()) return RunHere(options);
  if (options.least_ranks > 0) options.ranks = RanksWithin(*hosts, options.least_ranks, options.most_ranks);
  const absl::StatusOr<std::vector<HostRanks>> placed = PlaceRanks(*hosts, options.ranks, options.watch.placement);
  if (!placed.ok()) return Fail(placed.status().message(), kExitUsage);
  if (const absl::Status enough = CheckServers(options, placed->back().first + placed->back().count); !enough.ok()) {
    return Fail(enough.message(), kExitUsage);
  }
  if (placed->size() == 1 && IsLoopbackName(placed->front().host) && options.remote_shell.empty() &&
      !options.preflight_only && options.server_hosts.empty()) {
    options.ranks = placed->front().count;
    return RunHere(options);
  }
  if (options.remote_gyrerun.empty()) options.remote_gyrerun = OwnPath();
  if (options.dry_run) return Print(DryRunReport(options, *placed));
  if (const std::optional<int> code = PrepareOutputDir(options)) return *code;
  int ranks = 0;
  for (const HostRanks& host : *placed) ranks += host.count;
  return RunTraced(options, ranks, [&] {
    return RunGuarded(options.grace, -1, [&](int guard) { return RunJob({options, {}, *placed, guard, *hosts}); });
  });
}

int PrintManifest(const std::vector<std::string>& arguments) {
  const absl::StatusOr<ManifestOptions> options = ParseManifestOptions(arguments);
  if (!options.ok()) return Fail(options.status().message(), kExitUsage);
  if (options->answer) return Print(*options->answer);
  const absl::StatusOr<std::string> manifest = RenderManifest(*options);
  return manifest.ok() ? Print(*manifest) : Fail(manifest.status().message(), kExitUsage);
}

int PrintStatus(const std::vector<std::string>& arguments) {
  if (arguments.size() != 1) return Fail("status takes one file; try: gyrerun status FILE", kExitUsage);
  const absl::StatusOr<std::string> text = DescribeStatusFile(arguments[0]);
  return text.ok() ? Print(*text) : Fail(text.status().message(), kExitHostfile);
}

int PrintRecommendation(const std::vector<std::string>& arguments) {
  const absl::StatusOr<std::string> text = RunRecommend(arguments);
  if (text.ok()) return Print(*text);
  return Fail(text.status().message(), absl::IsInvalidArgument(text.status()) ? kExitUsage : kExitOutput);
}

int PrintStacks(const std::vector<std::string>& arguments) {
  if (arguments.empty()) return Fail("stacks takes process ids; try: gyrerun stacks PID", kExitUsage);
  int code = 0;
  for (const std::string& argument : arguments) {
    const absl::StatusOr<StackTarget> target = ParseStackTarget(argument);
    if (!target.ok()) return Fail(target.status().message(), kExitUsage);
    const absl::StatusOr<std::string> stacks = StacksOf(*target);
    if (!stacks.ok()) {
      code = Fail(stacks.status().message(), kExitNotStarted);
    } else if (const int lost = Print(*stacks); lost != 0) {
      return lost;
    }
  }
  return code;
}

int Main(const std::vector<std::string>& arguments) {
  FillStandardDescriptors();
  if (!arguments.empty() && arguments[0] == "status") return PrintStatus({arguments.begin() + 1, arguments.end()});
  if (!arguments.empty() && arguments[0] == "recommend") {
    return PrintRecommendation({arguments.begin() + 1, arguments.end()});
  }
  if (!arguments.empty() && arguments[0] == "stacks") return PrintStacks({arguments.begin() + 1, arguments.end()});
  if (!arguments.empty() && arguments[0] == "manifest") return PrintManifest({arguments.begin() + 1, arguments.end()});
  if (!arguments.empty() && arguments[0] == "serve") return Serve({arguments.begin() + 1, arguments.end()});
  const absl::StatusOr<Options> options = ParseOptions(arguments);
  if (!options.ok()) return Fail(options.status().message(), kExitUsage);
  if (options->answer) return Print(*options->answer);
  for (const std::string& note : options->notes) Fail(note, 0);
  if (options->agent) return RunGuarded(options->grace, 0, [](int guard_pidfd) { return Agent(guard_pidfd).Run(); });
  if (!options->over_hosts()) return RunHere(*options);
  return RunOnHosts(*options);
}

}  // namespace

}  // namespace gyre::launch

int main(int argc, char** argv) {
  return gyre::launch::RunWithLastCatch([&] { return gyre::launch::Main({argv + 1, argv + argc}); });
}
