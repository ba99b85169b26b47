#include "launch/agent_job.h"

#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "gyre/version.h"
#include "launch/exit_code.h"
#include "launch/program.h"
#include "launch/shared_volume.h"
#include "launch/store_address.h"
#include "net/interfaces.h"

namespace gyre::launch {

namespace {

std::string VariableOf(const std::vector<std::string>& environment, std::string_view name) {
  for (const std::string& entry : environment) {
    if (entry.starts_with(name) && entry.size() > name.size() && entry[name.size()] == '=') {
      return entry.substr(name.size() + 1);
    }
  }
  return "";
}

// Where the ranks will look for programs.
std::string PathOf(const AgentJob& message) {
  std::string path = VariableOf(message.environment, "PATH");
  if (!path.empty()) return path;
  const char* own = std::getenv("PATH");
  return own != nullptr ? own : "/usr/local/bin:/usr/bin:/bin";
}

// `address`: where others reach this host; looked up only where something is to be served.
absl::StatusOr<Job> MakeJob(const AgentJob& message, const std::string& address) {
  const JobKeys keys{message.job_id, message.secret, message.epoch};
  const auto size = static_cast<int>(message.size);
  return message.serve_store ? Job::Serve(keys, size, address, message.restart_rank > 0) : Job::Join(keys, size);
}

// In the network between the hosts, where that was chosen.
std::string OwnAddress(const AgentJob& message, const std::string& served) {
  if (!served.empty()) return served;
  return message.interface.empty() ? "" : FindAddress(message.interface).value_or("");
}

}  // namespace

std::variant<AgentDuty, Failure> TakeUpJob(const AgentJob& message) {
  if (message.version != GYRE_VERSION_STRING) {
    return Failure{kExitNotStarted, "version",
                   absl::StrCat("the launcher is version ", message.version, " and the agent " GYRE_VERSION_STRING,
                                "; try: one version of gyrerun on all hosts")};
  }
  if (message.directory.empty() || chdir(message.directory.c_str()) != 0) {
    return Failure{kExitNotStarted, "working directory",
                   absl::StrCat(ErrnoStatus(message.directory).message(),
                                "; try: to start gyrerun in a folder that all hosts have")};
  }
  absl::StatusOr<std::string> program = std::string();  // where there are only servers, none is needed
  if (message.ranks > 0) program = FindProgram(message.command[0], PathOf(message));
  if (!program.ok()) return Failure{ExitCodeOf(program.status()), "program", std::string(program.status().message())};
  absl::StatusOr<std::string> address = std::string();
  if (message.serve_store || message.servers > 0) {
    address = FindStoreAddress(message.host, message.interface, message.loopback);
  }
  absl::StatusOr<Job> job = address.ok() ? MakeJob(message, *address) : address.status();
  if (!job.ok()) return Failure{kExitNotStarted, "store", std::string(job.status().message())};
  AgentDuty duty{*std::move(job), *std::move(program), LookAtThisHost(OwnAddress(message, *address)), nullptr,
                 message.environment};
  if (!message.shared_volume.empty()) {
    absl::StatusOr<SharedVolume> volume = OpenSharedVolume(message.shared_volume);
    if (!volume.ok()) {
      return Failure{
          kExitNotStarted, "shared volume",
          absl::StrCat(volume.status().message(), "; try: without it, or a folder that its user may write to")};
    }
    for (std::string& entry : VariablesOf(*volume)) duty.environment.push_back(std::move(entry));
  }
  const char* const own = std::getenv("GYRE_HOST_ID");
  const std::string host_id = VariableOf(duty.environment, "GYRE_HOST_ID");
  if (!host_id.empty() || own != nullptr) duty.facts.shares = host_id.empty() ? own : host_id;
  if (message.servers == 0) return duty;
  duty.servers = std::make_unique<ServerRanks>();
  const absl::Status opened =
      duty.servers->Open(*address, static_cast<int>(message.first_server), static_cast<int>(message.servers));
  if (!opened.ok()) return Failure{kExitNotStarted, "servers", std::string(opened.message())};
  return duty;
}

}  // namespace gyre::launch
