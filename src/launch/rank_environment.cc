#include "launch/rank_environment.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "absl/strings/str_cat.h"

namespace gyre::launch {

namespace {

constexpr std::array<std::string_view, 6> kOwn = {"GYRE_RANK",   "GYRE_SIZE",  "GYRE_STORE",
                                                  "GYRE_JOB_ID", "GYRE_EPOCH", "GYRE_SECRET_FD"};

std::string_view NameOf(std::string_view entry) {
  return entry.substr(0, entry.find('='));
}

void Set(std::vector<std::string>& environment, std::string entry) {
  const auto same = [&](const std::string& other) { return NameOf(other) == NameOf(entry); };
  environment.erase(std::remove_if(environment.begin(), environment.end(), same), environment.end());
  environment.push_back(std::move(entry));
}

}  // namespace

absl::Status CheckExport(const std::string& entry) {
  const std::string_view name = NameOf(entry);
  if (name.empty()) return absl::InvalidArgumentError(absl::StrCat("-x ", entry, " names no variable; try: -x VAR=1"));
  if (std::find(kOwn.begin(), kOwn.end(), name) != kOwn.end()) {
    return absl::InvalidArgumentError(
        absl::StrCat("-x ", entry, ": gyrerun sets this variable itself; try: without it"));
  }
  return absl::OkStatus();
}

JobIdentity WithReports(JobIdentity job, int report_fd) {
  absl::StrAppend(&job.secret_fd, ",", report_fd);
  return job;
}

std::vector<std::string> IdentityVariables(const JobIdentity& job, int rank) {
  return {absl::StrCat("GYRE_RANK=", rank),       absl::StrCat("GYRE_SIZE=", job.size),
          absl::StrCat("GYRE_STORE=", job.store), absl::StrCat("GYRE_JOB_ID=", job.job_id),
          absl::StrCat("GYRE_EPOCH=", job.epoch), absl::StrCat("GYRE_SECRET_FD=", job.secret_fd)};
}

std::vector<std::string> RankEnvironment(const std::vector<std::string>& inherited,
                                         const std::vector<std::string>& exports, const JobIdentity& job, int rank) {
  std::vector<std::string> environment = inherited;
  for (const std::string& entry : exports) {
    if (entry.find('=') != std::string::npos) Set(environment, entry);
  }
  for (std::string& entry : IdentityVariables(job, rank)) Set(environment, std::move(entry));
  return environment;
}

std::vector<std::string> RemoteEnvironment(const std::vector<std::string>& inherited,
                                           const std::vector<std::string>& exports) {
  std::vector<std::string> environment;
  for (const std::string& entry : inherited) {
    const std::string_view name = NameOf(entry);
    const bool own = std::find(kOwn.begin(), kOwn.end(), name) != kOwn.end();
    if (name.starts_with("GYRE_") && !own && name != "GYRE_HOST_ID") Set(environment, entry);
  }
  for (const std::string& entry : exports) {
    if (entry.find('=') != std::string::npos) {
      Set(environment, entry);
      continue;
    }
    const auto found = std::find_if(inherited.begin(), inherited.end(),
                                    [&](const std::string& other) { return NameOf(other) == entry; });
    if (found != inherited.end()) Set(environment, *found);
  }
  return environment;
}

}  // namespace gyre::launch
