#include "launch/remote_command.h"

#include "absl/strings/str_split.h"
#include "launch/report.h"

namespace gyre::launch {

std::vector<std::string> RemoteCommand(const Options& options, const std::string& host) {
  std::vector<std::string> command = absl::StrSplit(options.remote_shell, ' ', absl::SkipEmpty());
  if (command.empty()) {
    command = {"ssh",
               "-x",
               "-T",
               "-o",
               "BatchMode=yes",
               "-o",
               "ConnectTimeout=10",
               "-o",
               "ServerAliveInterval=15",
               "-o",
               "ControlMaster=no"};
    command.insert(command.end(), options.ssh_options.begin(), options.ssh_options.end());
  }
  // Remote shells join what follows the host to one line, and have it read by a shell.
  for (const std::string& word : {host, QuotedCommand({options.remote_gyrerun}), std::string("--agent")}) {
    command.push_back(word);
  }
  return command;
}

}  // namespace gyre::launch
