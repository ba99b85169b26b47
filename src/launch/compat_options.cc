#include "launch/compat_options.h"

#include <algorithm>
#include <cmath>

#include "CLI/App.hpp"
#include "CLI/Config.hpp"
#include "CLI/Formatter.hpp"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "launch/hosts.h"
#include "launch/options.h"
#include "launch/wrong.h"

namespace gyre::launch {

namespace {

constexpr char kGroup[] = "As horovodrun's";
constexpr double kMostMegabytes = 1 << 20;

// Gyre's name of a level of Horovod's.
std::string LevelName(const std::string& level) {
  const std::string name = absl::AsciiStrToLower(level);
  if (name == "trace") return "debug";
  return name == "fatal" ? "error" : name;
}

}  // namespace

void CompatFlags::Declare(CLI::App& app) {
  app.add_option("-p,--ssh-port", ssh_port_, "Port of ssh on the hosts")
      ->check(CLI::Range(1, 65535))
      ->type_name("PORT")
      ->group(kGroup);
  app.add_option("-i,--ssh-identity-file", ssh_identity_, "Key file for ssh")->type_name("FILE")->group(kGroup);
  app.add_option("--min-np", least_ranks_, "Over hosts: start with as few ranks, if there are no more slots")
      ->check(CLI::Range(1, kMaxJobRanks))
      ->type_name("N")
      ->group(kGroup);
  app.add_option("--max-np", most_ranks_, "Over hosts: take as many slots as there are, up to so many")
      ->check(CLI::Range(1, kMaxJobRanks))
      ->type_name("N")
      ->group(kGroup);
  app.add_option("--fusion-threshold-mb", fusion_threshold_, "Size of gradients' buckets: the ranks' GYRE_FUSION_BYTES")
      ->type_name("MIB")
      ->group(kGroup);
  app.add_option("--cycle-time-ms", cycle_time_, "Taken, and said to mean nothing: Gyre has no cycle")
      ->type_name("MS")
      ->group(kGroup);
  app.add_option("--log-level", log_level_, "The ranks' GYRE_LOG_LEVEL")
      ->check(CLI::IsMember({"trace", "debug", "info", "warning", "error", "fatal"}, CLI::ignore_case))
      ->type_name("LEVEL")
      ->group(kGroup);
}

absl::Status CompatFlags::FinishSsh(Options& options) const {
  if (ssh_port_ == 0 && ssh_identity_.empty()) return absl::OkStatus();
  if (!options.remote_shell.empty()) {
    return Wrong("-p and -i are for ssh, and --remote-shell says to use another",
                 "them among the words of --remote-shell");
  }
  if (!options.over_hosts()) return Wrong("-p and -i are for hosts that ssh leads to", "-H a:2,b:2");
  if (ssh_port_ != 0) options.ssh_options.insert(options.ssh_options.end(), {"-p", absl::StrCat(ssh_port_)});
  if (!ssh_identity_.empty()) options.ssh_options.insert(options.ssh_options.end(), {"-i", ssh_identity_});
  return absl::OkStatus();
}

absl::Status CompatFlags::FinishRange(Options& options) const {
  if (least_ranks_ == 0 && most_ranks_ == 0) return absl::OkStatus();
  if (!options.over_hosts()) return Wrong("--min-np and --max-np are for hosts, whose slots vary", "-np N");
  options.least_ranks = least_ranks_ != 0 ? least_ranks_ : std::max(1, options.ranks);
  options.most_ranks = most_ranks_ != 0 ? most_ranks_ : options.ranks != 0 ? options.ranks : kMaxJobRanks;
  if (options.least_ranks <= options.most_ranks) return absl::OkStatus();
  return Wrong(absl::StrCat("at least ", options.least_ranks, " ranks and at most ", options.most_ranks, " are none"),
               "--min-np 2 --max-np 8");
}

absl::Status CompatFlags::Finish(const CLI::App& app, Options& options) const {
  if (absl::Status ssh = FinishSsh(options); !ssh.ok()) return ssh;
  if (absl::Status range = FinishRange(options); !range.ok()) return range;
  if (app.count("--fusion-threshold-mb") > 0) {
    const double bytes = fusion_threshold_ * (1 << 20);
    if (!(bytes >= 1 && fusion_threshold_ <= kMostMegabytes)) {
      return Wrong("--fusion-threshold-mb must be more than 0: a bucket holds one tensor at least",
                   "--fusion-threshold-mb 64, or without it: then buckets are planned");
    }
    options.exports.push_back(absl::StrCat("GYRE_FUSION_BYTES=", std::llround(bytes)));
  }
  if (!log_level_.empty()) options.exports.push_back(absl::StrCat("GYRE_LOG_LEVEL=", LevelName(log_level_)));
  if (app.count("--cycle-time-ms") > 0) {
    options.notes.emplace_back(
        "--cycle-time-ms means nothing here: operations start when all ranks have submitted them");
  }
  return absl::OkStatus();
}

}  // namespace gyre::launch
