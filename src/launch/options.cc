#include "launch/options.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>

#include "CLI/App.hpp"
#include "CLI/Config.hpp"
#include "CLI/Formatter.hpp"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "gyre/version.h"
#include "launch/compat_options.h"
#include "launch/help_formatter.h"
#include "launch/hosts.h"
#include "launch/rank_environment.h"
#include "launch/report.h"
#include "launch/server_ranks.h"
#include "launch/wrong.h"

namespace gyre::launch {

namespace {

constexpr double kShortestHostTimeout = 0.5;  // seconds
constexpr char kExample[] = "gyrerun -np 2 PROGRAM";

constexpr char kFooter[] = R"(
Options end at PROGRAM; what follows belongs to it. `--` before PROGRAM is allowed.

With -H or --hostfile the ranks fill the hosts in their order. A remote shell leads to each, called as
CMD HOST gyrerun --agent; nothing secret is on its command line. There the ranks run in the same working directory, with
the environment of that login, gyrerun's GYRE_* variables and -x. All hosts are ready before any rank starts; a host
that falls silent is lost, and its ranks with it. A single host "localhost" needs no remote shell.

Every rank is a process group of its own and gets GYRE_RANK, GYRE_SIZE, GYRE_STORE, GYRE_JOB_ID, GYRE_EPOCH and
GYRE_SECRET_FD on top of gyrerun's environment. Rank 0 reads gyrerun's standard input unless that is a terminal; the others, and
rank 0 then, read /dev/null.

Output passes line by line and unchanged. A tag reads [RANK]<stdout>: and a time stamp 2026-01-31T12:34:56.789 before
it; on several hosts [RANK@HOST]. --output-dir also keeps each rank's output, untagged, in DIR/rank.N.out and DIR/rank.N.err.

The first rank that fails, by time, is the root cause. The others may end by themselves for --settle seconds (they
learn of the loss from the library); then, or once only stopped ranks are left, gyrerun sends SIGTERM, and after
--grace seconds SIGKILL. Nothing that the ranks have started outlives gyrerun. SIGINT, SIGTERM, SIGHUP and SIGQUIT end
the job likewise, a second SIGINT at once; SIGUSR1 and SIGUSR2 are passed on to the ranks. Signals that gyrerun was
started with as ignored (nohup) stay so.

With --servers the ranks train through parameter servers, spread evenly over the ranks' hosts or --server-hosts
(--colocate-servers: one beside each rank), which end when all ranks have ended. With --restart-rank a rank or server
that dies is started again while the others go on; one that dies once more than that ends the job. In tags, files and
messages of ranks, server K of N ranks is number N + K.

With --max-restarts a job that failed is started again, in the next epoch. A job whose ranks end on SIGTERM with 75 (or
0) was halted at a checkpoint, and so says gyrerun.

On a terminal a line below all output says how the job is, as far as its program reports that (docs/gyrerun.md).

gyrerun manifest --help: Kubernetes objects of a job. gyrerun status FILE: what --status-file says. gyrerun recommend
FILE: what to request for a job, by its --trace-usage. gyrerun stacks PID...: what processes are doing.

Exit code: 0 when all ranks exit 0; else that of the rank that failed first, 128 + N if signal N killed it or ended
gyrerun; 64 wrong usage; 65 wrong hostfile; 69 the job could not be started, or a host not be reached; 70 gyrerun had no
memory, or has a fault of its own; 74 output could not be written (141: its reader has gone); 75 halted; 124 --timeout;
126 PROGRAM cannot be executed; 127 PROGRAM was not found; 137 a host was lost.)";

// What is given as text or in other units than Options has.
struct RawOptions {
  std::string ranks;
  std::string server_hosts;
  double timeout = 0;
  double settle = 2;
  double grace = 5;
  double start_timeout = 60;
  double host_timeout = 1.5;
  double restart_delay = 1;
  bool check_build = false;
  WatchFlags watch;
  CompatFlags compat;
};

void DeclareHosts(CLI::App& app, Options& options, RawOptions& raw) {
  app.add_option("-H,--host", options.host_list, "Hosts, and how many ranks each takes (1)")
      ->type_name("HOST[:SLOTS],...");
  app.add_option("--hostfile", options.hostfile, "The same from a file: lines HOST slots=N")->type_name("FILE");
  app.add_option("--hosts-from", options.hosts_from,
                 "Who names the hosts: mpijob, slurm, sagemaker; auto: whichever is there, else this host")
      ->check(CLI::IsMember(std::vector<std::string>{"auto", "mpijob", "slurm", "sagemaker"}))
      ->type_name("WHO");
  app.add_option("--host-discovery-script", options.discovery_script,
                 "A command that prints the hosts, run again until they have -np slots")
      ->type_name("CMD");
  app.add_option("--slots-per-host", options.slots_per_host, "Slots of hosts that are named without (1)")
      ->check(CLI::Range(1, kMaxSlots))
      ->type_name("N");
  app.add_option("--remote-shell", options.remote_shell, "What leads to a host (ssh, which may ask for nothing)")
      ->type_name("CMD");
  app.add_option("--remote-gyrerun", options.remote_gyrerun, "Where gyrerun is on the hosts (where it is here)")
      ->type_name("PATH");
  app.add_option("--interface,--network-interface,--network-interfaces", options.interface,
                 "Network between the hosts: interface, subnet or address; the ranks' GYRE_INTERFACE")
      ->type_name("NAME|SUBNET");
  app.add_option("--start-timeout", raw.start_timeout, "For all hosts to get ready (60)")->type_name("SECONDS");
  app.add_option("--host-timeout", raw.host_timeout, "A host that is silent for longer is lost (1.5)")
      ->type_name("SECONDS");
  app.add_option("--shared-volume", options.shared_volume,
                 "Folder that hosts which are containers of one machine share: their ranks share memory then")
      ->type_name("DIR");
  app.add_flag("--preflight-only", options.preflight_only, "Get all hosts ready, tell of each, and start nothing");
  app.add_flag("--agent", options.agent)->group("");  // gyrerun's own, on the hosts
}

void DeclareServers(CLI::App& app, Options& options, RawOptions& raw) {
  app.add_option("--servers", options.servers, "Parameter servers beside the ranks (0), whose GYRE_STRATEGY becomes ps")
      ->check(CLI::Range(0, kMaxServers))
      ->type_name("K");
  app.add_option("--server-hosts", raw.server_hosts, "Hosts for these servers, also such that have no ranks")
      ->type_name("HOST,...");
  app.add_flag("--colocate-servers", options.colocate_servers, "One parameter server beside each rank, on its host");
  app.add_option("--replicas", options.replicas,
                 "With two servers or more: 1 keeps a copy of each server's state at the next one (0)")
      ->check(CLI::Range(0, 1))
      ->type_name("N");
  app.add_option("--restart-rank", options.restart_rank,
                 "With --servers: start each rank or server that dies again, alone, so many times (0)")
      ->check(CLI::Range(0, 1'000'000))
      ->type_name("N");
}

void DeclareOptions(CLI::App& app, Options& options, RawOptions& raw) {
  app.prefix_command();
  app.set_version_flag("--version", "gyrerun " GYRE_VERSION_STRING);
  app.footer(kFooter + 1);
  app.formatter(std::make_shared<HelpFormatter>("gyrerun [OPTIONS] PROGRAM [ARGS...]"));
  app.add_option("-n,--np", raw.ranks, "Number of ranks; also -np. Over hosts: all slots")->type_name("N");
  app.add_option("-x", options.exports,
                 "Set VAR to VALUE for the ranks; may be given again and again (a bare VAR is "
                 "passed on, as all of the environment is)")
      ->type_name("VAR[=VALUE]")
      ->allow_extra_args(false);
  app.add_flag("--tag-output", options.tag_output, "Begin each line with its rank and stream");
  app.add_flag("--timestamp-output,--timestamps", options.timestamp_output, "Begin each line with the time");
  app.add_option("--output-dir,--output-filename", options.output_dir, "Also write each rank's output to files there")
      ->type_name("DIR");
  app.add_option("--timeline,--timeline-filename", options.timeline,
                 "Write the calls of all ranks there, for Perfetto or chrome://tracing")
      ->type_name("FILE");
  app.add_option("--timeout", raw.timeout, "End the job after so long, with exit code 124")->type_name("SECONDS");
  app.add_option("--settle", raw.settle, "How long the others may go on after a rank has failed (2)")
      ->type_name("SECONDS");
  app.add_option("--grace", raw.grace, "From SIGTERM to SIGKILL (5)")->type_name("SECONDS");
  app.add_option("--max-restarts,--reset-limit", options.max_restarts,
                 "Start a job that failed again, so many times (0)")
      ->check(CLI::Range(0, 1'000'000))
      ->type_name("N");
  app.add_option("--restart-delay", raw.restart_delay,
                 "Before the first restart (1); doubles each time, to 60 at most, give or take half")
      ->type_name("SECONDS");
  app.add_option("--status-file", options.status_file, "Keep the job's phase there; see gyrerun status FILE")
      ->type_name("FILE");
  DeclareServers(app, options, raw);
  DeclareHosts(app, options, raw);
  raw.watch.Declare(app);
  raw.compat.Declare(app);
  app.add_flag("--verbose", options.verbose, "Say what starts and ends, and when");
  app.add_flag("--dry-run", options.dry_run, "Print what would be started, and start nothing");
  app.add_flag("--check-build", raw.check_build, "Print which optional parts this build has");
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

absl::Status CheckServerHosts(const Options& options) {
  if (options.server_hosts.empty()) return absl::OkStatus();
  if (options.servers == 0) return Wrong("--server-hosts says where servers are", "--servers 2 --server-hosts c,d");
  if (!options.over_hosts()) return Wrong("--server-hosts is for ranks on hosts", "-H a:2,b:2 --server-hosts c,d");
  if (std::ssize(options.server_hosts) > options.servers) {
    return Wrong(absl::StrCat("--server-hosts names ", options.server_hosts.size(), " hosts for ", options.servers,
                              options.servers == 1 ? " server" : " servers"),
                 "a server for each of them, or fewer hosts");
  }
  return absl::OkStatus();
}

absl::Status Check(const Options& options) {
  for (const std::string& entry : options.exports) RETURN_IF_ERROR(CheckExport(entry));
  if (options.command.empty()) return Wrong("PROGRAM is missing", kExample);
  const int sources = static_cast<int>(!options.host_list.empty()) + static_cast<int>(!options.hostfile.empty()) +
                      static_cast<int>(!options.hosts_from.empty()) +
                      static_cast<int>(!options.discovery_script.empty());
  if (options.preflight_only && sources == 0) return Wrong("--preflight-only is for hosts", "-H a:2,b:2");
  if (!options.shared_volume.empty() && sources == 0) return Wrong("--shared-volume is for hosts", "-H a:2,b:2");
  if (options.colocate_servers && options.servers > 0) {
    return Wrong("--colocate-servers has one server a rank and excludes --servers", "one of them");
  }
  RETURN_IF_ERROR(CheckServers(options, options.ranks));
  RETURN_IF_ERROR(CheckServerHosts(options));
  if (options.replicas > 0 && options.servers < 2 && !options.colocate_servers) {
    return Wrong("--replicas takes two servers at least", "--servers 2 --replicas 1");
  }
  if (options.restart_rank > 0 && !options.has_servers()) {
    return Wrong("--restart-rank is for ranks that train through servers", "--servers 1 --restart-rank 3");
  }
  if (sources > 1) return Wrong("-H, --hostfile, --hosts-from and --host-discovery-script exclude each other");
  return absl::OkStatus();
}

absl::StatusOr<int> ParseRankCount(const std::string& text, bool over_hosts) {
  int ranks = 0;
  const int most = over_hosts ? kMaxJobRanks : kMaxRanks;
  if (text.empty() && over_hosts) return 0;
  if (text.empty()) return Wrong("the number of ranks is missing", kExample);
  if (absl::SimpleAtoi(text, &ranks) && ranks >= 1 && ranks <= most) return ranks;
  return Wrong(absl::StrCat("-np must be a number from 1 to ", most, ", not ", text), kExample);
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
  if (!remaining.empty() && remaining.front() == "--") {
    command.erase(command.begin());
    return command;
  }
  // The parser goes on after an option that it does not know, so this one may be far from the others.
  if (!remaining.empty() && absl::StartsWith(remaining[0], "-")) {
    return Wrong(absl::StrCat("unknown option ", remaining[0]));
  }
  return command;
}

}  // namespace

absl::Status CheckServers(const Options& options, int ranks) {
  const int servers = options.ServersFor(ranks);
  if (servers <= kMaxServers) return absl::OkStatus();
  return Wrong(absl::StrCat("--colocate-servers is for ", kMaxServers, " ranks at most, not ", ranks),
               "--servers with a number");
}

absl::StatusOr<Options> ParseOptions(const std::vector<std::string>& arguments) {
  Options options;
  RawOptions raw;
  CLI::App app(
      "gyrerun starts PROGRAM as N ranks on this host or others, joins them into one job, and stays until all have "
      "ended.",
      "gyrerun");
  DeclareOptions(app, options, raw);
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
  if (options.agent) return options;
  for (const char* option : {"--host", "--hostfile"}) {
    // An empty variable in a script must not mean this host.
    const std::string& value = std::string_view(option) == "--host" ? options.host_list : options.hostfile;
    if (app.count(option) > 0 && value.empty()) return Wrong(absl::StrCat(option, " is empty"), "-H a:2,b:2");
  }
  ASSIGN_OR_RETURN(options.command, Command(arguments, app.remaining()));
  ASSIGN_OR_RETURN(options.ranks, ParseRankCount(raw.ranks, options.over_hosts()));
  if (app.count("--server-hosts") > 0) {
    ASSIGN_OR_RETURN(options.server_hosts, ParseServerHosts(raw.server_hosts));
  }
  RETURN_IF_ERROR(Check(options));
  RETURN_IF_ERROR(raw.compat.Finish(app, options));
  if (options.replicas > 0) options.exports.push_back(ReplicasVariable(options.exports, options.replicas));
  RETURN_IF_ERROR(CheckSeconds("--settle", raw.settle, true));
  RETURN_IF_ERROR(CheckSeconds("--grace", raw.grace, true));
  RETURN_IF_ERROR(CheckSeconds("--start-timeout", raw.start_timeout, false));
  RETURN_IF_ERROR(CheckSeconds("--host-timeout", raw.host_timeout, false));
  if (raw.host_timeout < kShortestHostTimeout) {
    return Wrong(absl::StrCat("--host-timeout must be ", kShortestHostTimeout,
                              " or more: hosts say every 0.25 s that "
                              "they are there"),
                 "--host-timeout 1.5");
  }
  ASSIGN_OR_RETURN(options.watch, raw.watch.Finish());
  RETURN_IF_ERROR(CheckSeconds("--restart-delay", raw.restart_delay, true));
  options.restart_delay = ToMilliseconds(raw.restart_delay);
  if (!options.timeline.empty()) {
    std::error_code error;
    options.timeline = std::filesystem::absolute(options.timeline, error).string();
    if (error) return Wrong("--timeline: there is no working directory any more", "an absolute path");
    options.exports.push_back(absl::StrCat("GYRE_TIMELINE=", options.timeline));  // a file a rank, merged in the end
  }
  options.start_timeout = ToMilliseconds(raw.start_timeout);
  options.host_timeout = ToMilliseconds(raw.host_timeout);
  options.settle = ToMilliseconds(raw.settle);
  options.grace = ToMilliseconds(raw.grace);
  if (app.count("--timeout") > 0) {
    RETURN_IF_ERROR(CheckSeconds("--timeout", raw.timeout, false));
    options.timeout = ToMilliseconds(raw.timeout);
  }
  return options;
}

}  // namespace gyre::launch
