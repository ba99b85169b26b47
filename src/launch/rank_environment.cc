#include "launch/rank_environment.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <string_view>

#include "absl/strings/str_cat.h"

namespace gyre::launch {

namespace {

constexpr std::array<std::string_view, 6> kOwn = {"GYRE_RANK",   "GYRE_SIZE",  "GYRE_STORE",
                                                  "GYRE_JOB_ID", "GYRE_EPOCH", "GYRE_SECRET_FD"};

std::string_view NameOf(std::string_view entry) {
  return entry.substr(0, entry.find('='));
}

void SetVariable(std::vector<std::string>& environment, std::string entry) {
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
    if (entry.find('=') != std::string::npos) SetVariable(environment, entry);
  }
  for (std::string& entry : IdentityVariables(job, rank)) SetVariable(environment, std::move(entry));
  return environment;
}

void NameRankAsOthersDo(const std::vector<uint32_t>& ranks_on_hosts, int rank, std::vector<std::string>& environment) {
  auto local = static_cast<uint32_t>(rank);
  size_t host = 0;
  for (; host + 1 < ranks_on_hosts.size() && local >= ranks_on_hosts[host]; ++host) local -= ranks_on_hosts[host];
  const uint32_t size = std::accumulate(ranks_on_hosts.begin(), ranks_on_hosts.end(), uint32_t{0});
  // Horovod's "cross" ranks are those with one local rank.
  const auto has_it = [local](uint32_t ranks) { return ranks > local; };
  const auto here = ranks_on_hosts.begin() + static_cast<ptrdiff_t>(host);
  const auto set = [&environment](const char* name, auto value) {
    SetVariable(environment, absl::StrCat(name, "=", value));
  };
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "RANK", "HOROVOD_RANK"}) set(name, rank);
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "WORLD_SIZE", "HOROVOD_SIZE"}) set(name, size);
  for (const char* name :
       {"OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_NODE_RANK", "LOCAL_RANK", "HOROVOD_LOCAL_RANK"}) {
    set(name, local);
  }
  for (const char* name : {"OMPI_COMM_WORLD_LOCAL_SIZE", "LOCAL_WORLD_SIZE", "HOROVOD_LOCAL_SIZE"}) set(name, *here);
  set("GROUP_RANK", host);
  set("GROUP_WORLD_SIZE", ranks_on_hosts.size());
  set("HOROVOD_CROSS_RANK", std::count_if(ranks_on_hosts.begin(), here, has_it));
  set("HOROVOD_CROSS_SIZE", std::count_if(ranks_on_hosts.begin(), ranks_on_hosts.end(), has_it));
}

std::vector<std::string> RemoteEnvironment(const std::vector<std::string>& inherited,
                                           const std::vector<std::string>& exports) {
  std::vector<std::string> environment;
  for (const std::string& entry : inherited) {
    const std::string_view name = NameOf(entry);
    const bool own = std::find(kOwn.begin(), kOwn.end(), name) != kOwn.end();
    if (name.starts_with("GYRE_") && !own && name != "GYRE_HOST_ID") SetVariable(environment, entry);
  }
  for (const std::string& entry : exports) {
    if (entry.find('=') != std::string::npos) {
      SetVariable(environment, entry);
      continue;
    }
    const auto found = std::find_if(inherited.begin(), inherited.end(),
                                    [&](const std::string& other) { return NameOf(other) == entry; });
    if (found != inherited.end()) SetVariable(environment, *found);
  }
  return environment;
}

}  // namespace gyre::launch
